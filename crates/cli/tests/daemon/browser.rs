//! A browser that is told what to do: Chromium's DevTools protocol, over two pipes.

use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::support::Bench;

/// A browser with one page; it ends with this.
pub(super) struct Browser {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
    session: Value,
    messages: u64,
}

impl Browser {
    /// Opens a page; nothing without a browser.
    pub(super) fn open(bench: &Bench, url: &str) -> Option<Browser> {
        let profile = format!("--user-data-dir={}", bench.path("chromium").display());
        // It reads from descriptor 3, and writes to 4.
        let script = "exec chromium \"$@\" 3<&0 4>&1 0</dev/null 1>/dev/null";
        let child = Command::new("sh")
            .args(["-c", script, "sh", "--headless", "--remote-debugging-pipe", "--no-sandbox"])
            .args(["--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync"])
            .args(["--disable-background-networking", "--disable-component-update", &profile])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn();
        let mut child = child.ok()?;
        let (input, output) = (child.stdin.take()?, BufReader::new(child.stdout.take()?));
        let mut browser = Browser { child, input, output, session: Value::Null, messages: 0 };
        let target = browser.call("Target.createTarget", &json!({ "url": url }))?;
        let attach = json!({ "targetId": target["targetId"], "flatten": true });
        browser.session = browser.call("Target.attachToTarget", &attach)?["sessionId"].take();
        Some(browser)
    }

    /// The result of a method; nothing when the browser has ended.
    pub(super) fn call(&mut self, method: &str, params: &Value) -> Option<Value> {
        self.messages += 1;
        let mut message = json!({ "id": self.messages, "method": method, "params": params });
        if !self.session.is_null() {
            message["sessionId"] = self.session.clone();
        }
        self.input.write_all(format!("{message}\0").as_bytes()).ok()?;
        loop {
            let mut bytes = Vec::new();
            self.output.read_until(0, &mut bytes).ok()?;
            bytes.pop()?;
            let mut said: Value = serde_json::from_slice(&bytes).expect("JSON");
            // Others are events, of which nothing is wanted.
            if said["id"] == self.messages {
                assert!(said["error"].is_null(), "{method}: {said}");
                return Some(said["result"].take());
            }
        }
    }

    /// The value of an expression in the page.
    pub(super) fn ask(&mut self, expression: &str) -> Value {
        let params = json!({ "expression": expression, "returnByValue": true });
        let mut result = self.call("Runtime.evaluate", &params).expect("it runs");
        assert!(result["exceptionDetails"].is_null(), "{expression}: {result}");
        result["result"]["value"].take()
    }

    /// Waits until an expression holds.
    #[track_caller]
    pub(super) fn wait_for(&mut self, expression: &str) {
        let start = Instant::now();
        while self.ask(expression) != true {
            let page = self.ask("document.body?.innerText");
            assert!(start.elapsed() < Duration::from_secs(20), "not {expression}: {page}");
            std::thread::sleep(Duration::from_millis(50));
        }
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        let _gone = self.child.kill();
        let _ended = self.child.wait();
    }
}
