// Workers: their load, their programs, and the queues that they poll.

import { busyOf, history, now, rate } from "./daemon.js";
import { chart, el, filled, percent, short } from "./element.js";

export function workersView() {
  return now.status.worker_loads.map((worker) => {
    const [busy, frames] = [busyOf(worker), rate(`frames ${worker.worker}`)];
    const tone = busy > 0.9 ? "bad" : "";
    return el("section", { class: "worker", "data-key": worker.worker },
      el("div", {},
        el("h2", {}, `Worker ${worker.worker}`, el("span", { class: "kind" }, worker.mode)),
        el("p", { class: "facts" }, worker.cpu == null ? "on any CPU" : `on CPU ${worker.cpu}`)),
      el("div", { class: "rate" },
        chart(history(`busy ${worker.worker}`), tone, `busy: ${percent(busy, 1)}%`, 1),
        el("p", {}, el("b", { class: tone }, `${percent(busy, 1)}%`),
          el("span", { class: "faint" }, "busy"))),
      el("div", { class: "rate" },
        chart(history(`frames ${worker.worker}`), "tx", `frames: ${short(frames)}/s`),
        el("p", {}, el("b", {}, `${short(frames)}/s`), el("span", { class: "faint" }, "frames"))),
      el("ul", { class: "shares" }, worker.programs.slice(0, 5).map((it) => el("li", {},
        it.id == null ? it.name : el("a", { href: `#programs/${it.id}` }, it.name),
        filled(it.share, 1, `${percent(it.share, 1)}%`))),
      worker.programs.length === 0 && el("li", { class: "faint" }, "in no program lately")),
      el("p", { class: "facts polls" }, "Polls ", polls(worker.queues),
        worker.shares?.length > 0 && ["; shares flows of ", worker.shares.map(named)]));
  });
}

function polls(ports) {
  if (ports.length === 0) return "no queue";
  return ports.map(({ port, queues }, index) => [named(port, index),
    queues.length === 1 && queues[0] === 0 ? "" : ` ${queues.join(" ")}`]);
}

// A port in a list.
function named(port, index) {
  return [index ? ", " : "", el("a", { href: `#ports/${encodeURIComponent(port)}` }, port)];
}
