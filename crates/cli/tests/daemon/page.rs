//! The page: what it shows in a browser, and whom it keeps out.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt as _;
use std::process::{Command, Stdio};
use std::time::Duration;

use serde_json::{Value, json};

use super::browser::Browser;
use super::{CONFIG, Daemon};
use crate::support::Bench;

const TOKEN: &str = "0123456789abcdef0123456789abcdef";

/// Address of a daemon's page: `127.0.0.1:PORT`.
fn address(daemon: &Daemon<'_>) -> String {
    let status = daemon.json(&["status"]);
    let page = status["page"].as_str().expect("it is served");
    page.trim_start_matches("http://").trim_end_matches('/').to_owned()
}

/// Sends bytes and reads what comes until the other end closes.
fn send(address: &str, request: &str) -> String {
    let mut stream = TcpStream::connect(address).expect("somebody listens");
    stream.set_read_timeout(Some(Duration::from_secs(20))).expect("it is a socket");
    // It may be refused before all of it is there.
    let _refused = stream.write_all(request.as_bytes());
    let mut answer = Vec::new();
    let _reset = stream.read_to_end(&mut answer);
    String::from_utf8_lossy(&answer).into_owned()
}

/// The answer to a request with these headers, whose first line is `METHOD PATH`.
fn ask(address: &str, line: &str, headers: &[&str], body: &str) -> String {
    let mut request = format!("{line} HTTP/1.1\r\nConnection: close\r\n");
    for header in headers {
        request.push_str(&format!("{header}\r\n"));
    }
    send(address, &format!("{request}Content-Length: {}\r\n\r\n{body}", body.len()))
}

fn status(answer: &str) -> u16 {
    let word = answer.split(' ').nth(1);
    word.and_then(|word| word.parse().ok()).unwrap_or_else(|| panic!("no status: {answer:?}"))
}

#[test]
fn the_page_keeps_others_out() {
    let bench = Bench::new("daemon_page_guard");
    let daemon = Daemon::start(&bench, &format!("[api]\nhttp = \"127.0.0.1:0\"\n{CONFIG}"));
    let at = address(&daemon);
    let host = format!("Host: {at}");
    let page = ask(&at, "GET /", &[&host], "");
    assert_eq!(status(&page), 200, "{page}");
    let lower = page.to_lowercase();
    let (head, _) = lower.split_once("\r\n\r\n").expect("a head");
    assert!(head.contains("content-security-policy: default-src 'none'"), "{head}");
    assert!(head.contains("x-content-type-options: nosniff"), "{head}");
    assert!(!head.contains("access-control-allow"), "{head}");
    assert!(page.contains("<script type=\"module\" src=\"main.js\">"), "{page}");
    assert_eq!(status(&ask(&at, "GET /v1/status", &[&host], "")), 200);

    let evil = "Host: evil.example";
    assert_eq!(status(&ask(&at, "GET /v1/status", &[evil], "")), 403);
    assert_eq!(status(&ask(&at, "GET /", &[evil], "")), 403);
    assert_eq!(status(&ask(&at, "GET /v1/status", &[], "")), 400);
    let origin = "Origin: http://evil.example";
    assert_eq!(status(&ask(&at, "GET /v1/status", &[&host, origin], "")), 403);
    assert_eq!(status(&ask(&at, "OPTIONS /v1/status", &[&host, origin], "")), 403);
    let paths = ["/../../etc/passwd", "/%2e%2e/%2e%2e/etc/passwd", "//etc/passwd", "/main.js/../x"];
    for path in paths {
        let answer = ask(&at, &format!("GET {path}"), &[&host], "");
        assert_eq!(status(&answer), 404, "{path}: {answer}");
        assert!(!answer.contains("root:"), "{path}: {answer}");
    }
    let change = json!({"name": "x", "kind": "sink"}).to_string();
    let refused = ask(&at, "POST /v1/ports", &[&host, "Content-Type: application/json"], &change);
    assert_eq!(status(&refused), 403, "{refused}");
    assert!(refused.contains("token_file"), "it says what to do: {refused}");
    assert_eq!(status(&ask(&at, "DELETE /v1/ports/gen", &[&host], "")), 403);
    assert_eq!(status(&ask(&at, "GET /v1/ports/gen/dump", &[&host], "")), 403);
    let huge = format!("X-Huge: {}", "x".repeat(200_000));
    assert_eq!(status(&ask(&at, "GET /", &[&host, &huge], "")), 431);
    let many: Vec<String> = (0..500).map(|number| format!("X-{number}: 1")).collect();
    let many: Vec<&str> = many.iter().map(String::as_str).chain([host.as_str()]).collect();
    assert_eq!(status(&ask(&at, "GET /", &many, "")), 431);
    assert_eq!(status(&ask(&at, "POST /", &[&host], &"x".repeat(100_000))), 413);
    assert!(send(&at, "\x16\x03\x01\x02\x00\x01").is_empty() || daemon.rx("gen") > 0);
    assert_eq!(status(&ask(&at, "GET /", &[&host], "")), 200, "it is still there");
    daemon.end();
}

#[test]
fn with_a_token_the_page_is_for_those_who_know_it() {
    let bench = Bench::new("daemon_page_token");
    bench.file("token", format!("{TOKEN}\n"));
    let open = |mode: u32| {
        let mode = std::fs::Permissions::from_mode(mode);
        std::fs::set_permissions(bench.path("token"), mode).expect("it is ours");
    };
    let config = format!("[api]\nhttp = \"127.0.0.1:0\"\ntoken_file = \"token\"\n{CONFIG}");
    open(0o644);
    bench.file("t.toml", &config);
    let refusal = bench.refusal(2, &["check", "-c", "t.toml"]);
    assert!(refusal.contains("t.toml:3:1: api.token_file: ") && refusal.contains("chmod 600"));
    open(0o600);
    bench.file("u.toml", "[api]\nhttp = \"0.0.0.0:8480\"\n");
    let refusal = bench.refusal(2, &["check", "-c", "u.toml"]);
    assert!(refusal.contains("u.toml:2:1: api.http: ") && refusal.contains("token_file"));

    let daemon = Daemon::start(&bench, &config);
    let at = address(&daemon);
    let (host, right) = (format!("Host: {at}"), format!("Authorization: Bearer {TOKEN}"));
    assert_eq!(status(&ask(&at, "GET /", &[&host], "")), 200, "the page asks for it");
    assert_eq!(status(&ask(&at, "GET /v1/status", &[&host], "")), 401);
    let wrong = "Authorization: Bearer 0123456789abcdef0123456789abcdee";
    assert_eq!(status(&ask(&at, "GET /v1/status", &[&host, wrong], "")), 401);
    assert_eq!(status(&ask(&at, "GET /v1/status", &[&host, &right], "")), 200);
    let change = json!({"name": "x", "kind": "sink"}).to_string();
    let json = "Content-Type: application/json";
    assert_eq!(status(&ask(&at, "POST /v1/ports", &[&host, json], &change)), 401);
    let origin = "Origin: http://evil.example";
    assert_eq!(status(&ask(&at, "POST /v1/ports", &[&host, json, &right, origin], &change)), 403);
    assert_eq!(status(&ask(&at, "POST /v1/ports", &[&host, json, &right], &change)), 200);
    assert_eq!(daemon.json(&["port", "show", "x"])[0]["kind"], "sink");
    daemon.end();
}

/// The document that a browser makes of a page; `None` without a browser.
fn browse(bench: &Bench, arguments: &[&str], url: &str) -> Option<String> {
    let profile = format!("--user-data-dir={}", bench.path("chromium").display());
    let output = Command::new("chromium")
        .args(["--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"])
        .args(["--disable-background-networking", "--disable-component-update", "--disable-sync"])
        .args(["--hide-scrollbars", "--virtual-time-budget=6000", &profile])
        .args(arguments)
        .arg(url)
        .stdin(Stdio::null())
        .output();
    let output = output.ok()?;
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    Some(String::from_utf8_lossy(&output.stdout).into_owned())
}

#[test]
fn a_browser_shows_what_there_is() {
    let bench = Bench::new("daemon_page_browser");
    let daemon = Daemon::start(&bench, &format!("[api]\nhttp = \"127.0.0.1:0\"\n{CONFIG}"));
    daemon.wait_for("traffic", || daemon.rx("gen") > 1000);
    let url = format!("http://{}/", address(&daemon));
    let Some(page) = browse(&bench, &["--dump-dom"], &url) else {
        return println!("skipped: no chromium");
    };
    for port in ["gen", "out", "p0", "p1"] {
        assert!(page.contains(&format!("data-key=\"{port}\"")), "{port}: {page}");
    }
    assert!(page.contains(">every_verdict</a>"), "its program: {page}");
    assert!(page.contains("<polyline points=\""), "its rates: {page}");
    assert!(!page.contains("does not answer"), "{page}");

    let programs = daemon.json(&["prog", "show"]);
    let id = &programs[0]["id"];
    let page = browse(&bench, &["--dump-dom"], &format!("{url}#programs/{id}/sample"));
    let page = page.expect("it was there just now");
    assert!(page.contains("samples in it"), "{page}");
    assert!(page.contains("every_verdict.c"), "its source: {page}");
    let page = browse(&bench, &["--dump-dom"], &format!("{url}#drops")).expect("it was there");
    assert!(
        page.contains("<code>verdict</code>") || page.contains("Nothing was dropped"),
        "{page}"
    );

    for (view, shown) in [
        ("programs", "every_verdict.c"),
        ("maps", "<h2>"),
        ("workers", "Worker 0"),
        ("picture", "data-key=\"gen → out\""),
        ("ports/gen", "ifindex "),
    ] {
        let page = browse(&bench, &["--dump-dom"], &format!("{url}#{view}")).expect("it was there");
        assert!(page.contains(shown), "{view}: {page}");
        assert!(!page.contains("does not answer"), "{view}: {page}");
    }

    let picture = bench.path("page.png");
    let shot = format!("--screenshot={}", picture.display());
    browse(&bench, &[&shot, "--window-size=1280,720"], &url).expect("it was there");
    let png = std::fs::read(picture).expect("it was taken");
    assert!(png.starts_with(b"\x89PNG") && png.len() > 10_000, "{} bytes", png.len());
    daemon.end();
}

/// The daemon keeps past rates, loads and flows for pages that are opened later.
#[test]
fn who_comes_later_is_told_what_was() {
    let bench = Bench::new("daemon_page_history");
    let config = format!("[[worker]]\n[[worker]]\n[api]\nhttp = \"127.0.0.1:0\"\n{CONFIG}");
    let daemon = Daemon::start(&bench, &config);
    let at = address(&daemon);
    let get = |path: &str| {
        let answer = ask(&at, &format!("GET {path}"), &[&format!("Host: {at}")], "");
        let (_, body) = answer.split_once("\r\n\r\n").expect("a head");
        let body =
            body.get(body.find(['{', '[']).expect("JSON")..=body.rfind(['}', ']']).expect("JSON"));
        serde_json::from_str::<Value>(body.expect("its end")).expect("JSON")
    };
    daemon.wait_for("a point", || get("/v1/history")["points"].as_u64() >= Some(1));
    let past = get("/v1/history");
    let rates = past["ports"]["gen"]["rx"].as_array().expect("rates").iter();
    // A point stands for five seconds or more.
    let told: f64 = rates.map(|rate| rate.as_f64().expect("a number") * 5.0).sum();
    let counted = daemon.rx("gen") as f64;
    assert!(told > 0.0 && told <= counted, "{told} of {counted}: {past}");
    assert_eq!(past["ports"]["gen"]["rx"], past["total"]["rx"], "pairs are not counted twice");
    assert!(past["ports"]["p0"]["rx"].is_null(), "nothing came there: {past}");
    let time = past["time"].as_f64().expect("a time");
    assert_eq!(get(&format!("/v1/history?since={time}"))["points"], 0);

    let workers = get("/v1/workers");
    let polls = |worker: usize| workers[worker]["queues"].as_array().expect("queues").len();
    // `gen`, `p0` and `p1` have a queue each; a sink receives nothing.
    assert_eq!((polls(0) + polls(1), workers.as_array().map(Vec::len)), (3, Some(2)));
    assert!(workers[0]["busy"].as_f64() > Some(0.0), "{workers}");
    let flows = get("/v1/flows");
    let flow = &flows[0];
    assert_eq!(
        (&flow["from"], &flow["to"], flows.as_array().map(Vec::len)),
        (&json!("gen"), &json!("out"), Some(1)),
        "{flows}"
    );
    assert!(flow["frames_per_second"].as_f64() > Some(0.0), "{flows}");
    daemon.end();
}

#[test]
fn many_ports_are_a_line_each_in_the_order_of_numbers() {
    let bench = Bench::new("daemon_page_lines");
    let ports = (0..30).rev();
    let ports = ports.map(|number| format!("[[port]]\nname = \"eth{number}\"\nkind = \"sink\"\n"));
    let config = format!("[api]\nhttp = \"127.0.0.1:0\"\n{}", ports.collect::<String>());
    let daemon = Daemon::start(&bench, &config);
    let Some(mut browser) = Browser::open(&bench, &format!("http://{}/", address(&daemon))) else {
        return println!("skipped: no chromium");
    };
    browser.wait_for("document.querySelectorAll('table.lines tbody tr').length === 30");
    let names = "[...document.querySelectorAll('table.lines tbody a')].map((it) => it.innerText)";
    let expected: Vec<String> = (0..30).map(|number| format!("eth{number}")).collect();
    assert_eq!(browser.ask(names), json!(expected));
    browser.ask("document.querySelector('input[type=search]').value = 'eth2'");
    browser.ask("document.querySelector('input[type=search]').dispatchEvent(new Event('input'))");
    browser.wait_for("document.querySelectorAll('table.lines tbody tr').length === 11");
    // Narrower than a phone, nothing is wider than the page.
    let size = json!({ "width": 360, "height": 700, "deviceScaleFactor": 1, "mobile": true });
    browser.call("Emulation.setDeviceMetricsOverride", &size).expect("it is there");
    browser.wait_for("document.documentElement.scrollWidth <= innerWidth && innerWidth <= 400");
    daemon.end();
}

#[test]
fn ports_are_changed_in_the_page_by_who_knows_the_token() {
    let bench = Bench::new("daemon_page_change");
    let daemon = with_token(&bench);
    let url = format!("http://{}/#ports/p0", address(&daemon));
    let Some(mut browser) = Browser::open(&bench, &url) else {
        return println!("skipped: no chromium");
    };
    say_token(&mut browser, "wrong");
    let wrong = "document.querySelector('form.token .bad')?.innerText.includes('not the') ?? false";
    browser.wait_for(wrong);
    say_token(&mut browser, TOKEN);
    // Names and ids of what is attached there.
    let programs = || {
        let status = daemon.json(&["status"]);
        let links = status["links"].as_array().expect("links");
        let here = links.iter().filter(|link| link["port"] == "p0");
        let name = |link: &Value| link["name"].as_str().unwrap_or_default().to_owned();
        here.map(|link| (name(link), link["prog_id"].clone())).collect::<Vec<_>>()
    };
    let names = || programs().into_iter().map(|(name, _)| name).collect::<Vec<_>>();
    let (new, replacing) = ("details.attach input[name=file]", ".hooked label input");
    choose(&bench, &mut browser, new, "every_verdict.o");
    browser.ask("document.querySelector('input[name=program]').value = 'every_verdict'");
    click(&mut browser, "Attach");
    daemon.wait_for("a program", || names() == ["every_verdict"]);
    let first = programs();
    choose(&bench, &mut browser, replacing, "every_verdict.o");
    daemon.wait_for("another one", || names() == ["every_verdict"] && programs() != first);
    // The page reports a refused program and a loss of map contents; nothing changes.
    let second = programs();
    let said = "(document.querySelector('article pre.bad')?.innerText ?? '')";
    for (field, object) in [(new, "refused.o"), (replacing, "keeper_1.o")] {
        let before = browser.ask(said);
        choose(&bench, &mut browser, field, object);
        if field == new {
            click(&mut browser, "Attach");
        }
        browser.wait_for(&format!("{said} !== '' && {said} !== {before}"));
        assert_eq!(programs(), second, "{object}");
    }
    click(&mut browser, "Detach");
    daemon.wait_for("none", || names().is_empty());
    for (button, up) in [("Set down", false), ("Set up", true)] {
        click(&mut browser, button);
        daemon.wait_for(button, || daemon.json(&["port", "show", "p0"])[0]["up"] == up);
    }
    daemon.end();
}

/// A daemon whose page is for those who know the token.
fn with_token(bench: &Bench) -> Daemon<'_> {
    bench.file("token", format!("{TOKEN}\n"));
    let mode = std::fs::Permissions::from_mode(0o600);
    std::fs::set_permissions(bench.path("token"), mode).expect("it is ours");
    let config = format!("[api]\nhttp = \"127.0.0.1:0\"\ntoken_file = \"token\"\n{CONFIG}");
    Daemon::start(bench, &config)
}

/// Answers the page's question for the token, once.
fn say_token(browser: &mut Browser, token: &str) {
    browser.wait_for("!!document.querySelector('form.token:not(.seen) input')");
    browser.ask("document.querySelector('form.token').classList.add('seen')");
    browser.ask(&format!("document.querySelector('form.token input').value = '{token}'"));
    browser.ask("document.querySelector('form.token button').click()");
}

fn click(browser: &mut Browser, text: &str) {
    let button = format!(
        "[...document.querySelectorAll('main button')].find((it) => it.textContent === '{text}')"
    );
    browser.wait_for(&format!("!!{button}"));
    browser.ask(&format!("{button}.click()"));
}

/// Chooses a file, as its reader would.
fn choose(bench: &Bench, browser: &mut Browser, field: &str, object: &str) {
    let bytes = std::fs::read(bench.path(object)).expect("it is a fixture");
    browser.wait_for(&format!("!!document.querySelector('{field}')"));
    browser.ask(&format!(
        "{{ const files = new DataTransfer();
           files.items.add(new File([new Uint8Array({bytes:?})], '{object}'));
           const field = document.querySelector('{field}'); field.files = files.files;
           field.dispatchEvent(new Event('change')); }}"
    ));
}

#[test]
fn elements_are_changed_by_who_knows_the_token() {
    let bench = Bench::new("daemon_page_edit");
    let daemon = with_token(&bench);
    let set = |key: &str, value: &str| {
        daemon.json(&["map", "update", "overrides", "key", key, "value", value]);
    };
    let elements = || daemon.formatted(&["map", "dump", "overrides"]);
    set("70", "1");
    let id = daemon.json(&["map", "show", "name", "overrides"])["id"].clone();
    let url = format!("http://{}/#maps/{id}", address(&daemon));
    let Some(mut browser) = Browser::open(&bench, &url) else {
        return println!("skipped: no chromium");
    };
    // A wrong one is asked for again, in another form.
    for token in ["wrong", TOKEN] {
        say_token(&mut browser, token);
    }
    let button = |text: &str| {
        format!(
            "[...document.querySelectorAll('td button')].find((it) => it.innerText === '{text}')"
        )
    };
    let field = "document.querySelector('form.edit input')";
    browser.wait_for(&format!("!!{}", button("Change")));
    browser.ask(&format!("{}.click()", button("Change")));
    browser.wait_for(&format!("{field}?.value === '1'"));
    // Typed text stays while the page is redrawn, and elements appear and disappear.
    browser.ask(&format!("{field}.value = '2'"));
    for key in 0..7 {
        set(&key.to_string(), "1");
    }
    browser.wait_for("document.querySelectorAll('article tbody tr').length === 8");
    for key in 0..7 {
        daemon.json(&["map", "delete", "overrides", "key", &key.to_string()]);
    }
    browser.wait_for("document.querySelectorAll('article tbody tr').length === 1");
    assert_eq!(browser.ask(&format!("{field}.value")), "2");
    browser.ask(&format!("{}.click()", button("Store")));
    browser.wait_for("document.querySelector('td.value').innerText === '2'");
    assert_eq!(elements(), json!([{ "key": 70, "value": 2 }]));

    // The page reports an invalid value; nothing changes.
    for (text, trouble) in [("{", "JSON"), ("\"x\"", "expected a number")] {
        browser.wait_for(&format!("!!{}", button("Change")));
        browser.ask(&format!("{}.click()", button("Change")));
        browser.wait_for(&format!("!!{field}"));
        browser.ask(&format!("{field}.value = '{text}'"));
        browser.ask(&format!("{}.click()", button("Store")));
        let said = "document.querySelector('form.edit .bad')?.innerText";
        browser.wait_for(&format!("{said}?.includes('{trouble}') ?? false"));
        browser.ask(&format!("{}.click()", button("Leave")));
    }
    assert_eq!(elements(), json!([{ "key": 70, "value": 2 }]));

    browser.wait_for(&format!("!!{}", button("Change")));
    browser.ask(&format!("{}.click()", button("Change")));
    browser.wait_for(&format!("!!{}", button("Delete")));
    browser.ask(&format!("{}.click()", button("Delete")));
    browser.wait_for("document.querySelector('article').innerText.includes('It is empty.')");
    assert_eq!(elements(), json!([]));
    daemon.end();
}
