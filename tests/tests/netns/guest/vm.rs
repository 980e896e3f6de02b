//! A Debian kernel in QEMU, with a shell at the other end of a serial line.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::Shutdown;
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::net::{SocketAddr, UnixStream};
use std::path::PathBuf;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use towpath_tests::sources;

use crate::namespace::Namespace;

/// A running guest. It ends with the thread that booted it.
#[derive(Debug)]
pub(crate) struct Vm {
    qemu: Child,
    /// Commands, to the guest.
    input: ChildStdin,
    /// Lines that the guest prints.
    lines: Receiver<String>,
    /// QEMU's own commands.
    monitor: UnixStream,
    /// File with the messages of the guest's kernel.
    console: PathBuf,
    /// Its interfaces, in the order of their taps.
    pub(crate) interfaces: Vec<String>,
}

/// A network card of a guest's.
#[derive(Debug)]
pub(crate) enum Card {
    /// On a tap of this name.
    Tap(String),
    /// At a port of ours.
    VhostUser {
        /// The socket.
        socket: Socket,
        /// Pairs of queues, and processors.
        queues: u32,
        /// With packed rings.
        packed: bool,
        /// Its channel to the host.
        channel: Option<Socket>,
    },
}

/// A socket between QEMU and us.
#[derive(Debug)]
pub(crate) struct Socket {
    pub(crate) path: PathBuf,
    /// QEMU listens there.
    pub(crate) listens: bool,
}

impl Socket {
    /// QEMU's arguments for the character device of this name.
    fn chardev(&self, name: &str) -> String {
        let end = if self.listens { "server=on,wait=off" } else { "reconnect=1" };
        format!("socket,id={name},path={},{end}", self.path.display())
    }
}

/// The longest that any one command takes; emulated, and on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);

/// Says why guests cannot run here.
pub(crate) fn unavailable() -> Option<String> {
    if Command::new(QEMU).arg("--version").output().is_err() {
        return Some(format!("{QEMU} is missing: scripts/install-deps.sh test"));
    }
    image().as_ref().err().cloned()
}

/// A command of this machine's that runs in a guest, which has no libraries.
#[derive(Debug)]
pub(crate) struct Tool {
    /// The command, its loader and its libraries.
    pub(crate) files: Vec<PathBuf>,
    loader: String,
    name: String,
}

impl Tool {
    /// `None` where it isn't installed.
    pub(crate) fn find(name: &str) -> Option<Tool> {
        let place = ["/usr/sbin", "/usr/bin"].map(|folder| PathBuf::from(folder).join(name));
        let command = place.into_iter().find(|path| path.exists())?;
        let output = Command::new("ldd").arg(&command).output().ok()?;
        let text = String::from_utf8(output.stdout).ok()?;
        let mut files = vec![command];
        files.extend(text.split_whitespace().filter(|it| it.starts_with('/')).map(PathBuf::from));
        let loader = files.iter().find_map(|file| {
            let file = file.file_name()?.to_str()?;
            file.starts_with("ld-").then(|| file.to_owned())
        })?;
        Some(Tool { files, loader, name: name.to_owned() })
    }

    /// The command line for the guest's shell.
    pub(crate) fn call(&self, arguments: &str) -> String {
        format!("/bin/{} --library-path /bin /bin/{} {arguments}", self.loader, self.name)
    }
}

impl Vm {
    /// Boots one in a namespace, with these cards.
    pub(crate) fn boot(namespace: &Namespace, cards: &[Card]) -> Vm {
        Vm::boot_with(namespace, cards, &[])
    }

    /// The same with these files, each in the guest's folder `/bin`.
    pub(crate) fn boot_with(namespace: &Namespace, cards: &[Card], files: &[PathBuf]) -> Vm {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let name = format!("towpath-guest-{}-{number}", std::process::id());
        let console = folder().join(format!("console-{}-{number}.txt", std::process::id()));
        let mut command = namespace.command(QEMU);
        machine(&mut command, has_kvm());
        let initramfs = with_files(&name, files);
        command.arg("-initrd").arg(&initramfs).arg("-append");
        command.arg(format!("{BOOT} quiet"));
        command.arg("-serial").arg(format!("file:{}", console.display()));
        command.args(["-serial", "stdio", "-monitor", "chardev:monitor", "-chardev"]);
        command.arg(format!("socket,id=monitor,abstract=on,path={name},server=on,wait=off"));
        cards.iter().enumerate().for_each(|(index, card)| card.plug(index, &mut command));
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut qemu = command.spawn().unwrap();
        let lines = lines(qemu.stdout.take().unwrap());
        let input = qemu.stdin.take().unwrap();
        let monitor = connect(namespace, &name);
        let interfaces = Vec::new();
        let mut vm = Vm { qemu, input, lines, monitor, console, interfaces };
        vm.wait_until_ready();
        if !files.is_empty() {
            std::fs::remove_file(initramfs).unwrap();
        }
        assert_eq!(vm.interfaces.len(), cards.len(), "{:?}", vm.interfaces);
        vm
    }

    fn wait_until_ready(&mut self) {
        let ready = self.line("the guest boots");
        let interfaces = ready.strip_prefix("=ready ").unwrap_or_else(|| panic!("{ready}"));
        self.interfaces = interfaces.split(' ').map(str::to_owned).collect();
    }

    /// Ends QEMU, without warning.
    pub(crate) fn kill(&mut self) {
        self.qemu.kill().unwrap();
        self.qemu.wait().unwrap();
    }

    /// Boots it again, without warning.
    pub(crate) fn reboot(&mut self) {
        self.input.write_all(b"reboot -f\n").unwrap();
        self.wait_until_ready();
    }

    /// Runs a command of the guest's shell, or a function of `tests/guest/init`. It must succeed;
    /// gives what it printed.
    #[track_caller]
    pub(crate) fn run(&mut self, command: &str) -> String {
        let (status, text) = self.output(command);
        assert_eq!(status, 0, "{command}: {text}\n{}", self.log());
        text
    }

    /// Runs a command; gives its status and what it printed.
    #[track_caller]
    pub(crate) fn output(&mut self, command: &str) -> (i32, String) {
        assert!(!command.contains('\n'), "one line: {command}");
        self.input.write_all(format!("{command}\n").as_bytes()).unwrap();
        let mut text = String::new();
        loop {
            let line = self.line(command);
            if let Some(status) = line.strip_prefix("=done ") {
                return (status.parse().unwrap(), text);
            }
            text.push_str(&line);
            text.push('\n');
        }
    }

    /// Pulls the cable of an interface, or plugs it in again: the guest loses its carrier.
    pub(crate) fn set_link(&mut self, index: usize, is_on: bool) {
        let state = if is_on { "on" } else { "off" };
        self.monitor.write_all(format!("set_link n{index} {state}\n").as_bytes()).unwrap();
    }

    #[track_caller]
    fn line(&mut self, what: &str) -> String {
        match self.lines.recv_timeout(PATIENCE) {
            Ok(line) => line,
            Err(why) => panic!("{what}: {why}\n{}", self.log()),
        }
    }

    /// The end of what the guest's kernel said.
    fn log(&self) -> String {
        let log = std::fs::read(&self.console).unwrap_or_default();
        String::from_utf8_lossy(&log[log.len().saturating_sub(3000)..]).into_owned()
    }
}

impl Drop for Vm {
    fn drop(&mut self) {
        let _gone = self.qemu.kill();
        let _status = self.qemu.wait();
        let _closed = self.monitor.shutdown(Shutdown::Both);
        let _removed = std::fs::remove_file(&self.console);
    }
}

impl Card {
    fn plug(&self, index: usize, command: &mut Command) {
        match self {
            Card::Tap(tap) => {
                let tap = format!("tap,id=n{index},ifname={tap},script=no,downscript=no");
                command.args(["-netdev", &tap]);
                // Bonds want a speed and a duplex; a bond's members have addresses of their own.
                command.arg("-device").arg(format!(
                    "virtio-net-pci,netdev=n{index},mac=02:00:00:00:09:{index:02x},speed=10000,\
                     duplex=full,vectors=0,romfile="
                ));
            }
            Card::VhostUser { socket, queues, packed, channel } => {
                if let Some(channel) = channel {
                    let socket = channel.chardev(&format!("c{index}"));
                    command.args(["-device", "virtio-serial-pci", "-chardev", &socket]);
                    let port = format!("virtserialport,chardev=c{index},name=org.towpath.offload");
                    command.args(["-device", &port]);
                }
                // Memory that others may map, and a guest that may reboot.
                command.args(["-object", "memory-backend-memfd,id=mem0,size=192M,share=on"]);
                command.args(["-machine", "memory-backend=mem0", "-action", "reboot=reset"]);
                command.args(["-smp", &queues.to_string()]);
                command.args(["-chardev", &socket.chardev(&format!("v{index}"))]);
                let backend = format!("vhost-user,id=n{index},chardev=v{index},queues={queues}");
                command.args(["-netdev", &backend]);
                let on = |is_on| if is_on { "on" } else { "off" };
                command.arg("-device").arg(format!(
                    "virtio-net-pci,netdev=n{index},mac=02:00:00:00:09:{index:02x},vectors=0,\
                     romfile=,packed={},mq={}",
                    on(*packed),
                    on(*queues > 1)
                ));
            }
        }
    }
}

const QEMU: &str = "qemu-system-x86_64";
const BOOT: &str = "console=ttyS0 panic=-1 mitigations=off";

/// QEMU's arguments for the machine, the same for all guests.
fn machine(command: &mut Command, has_kvm: bool) {
    let processor: &[_] = match has_kvm {
        true => &["-accel", "kvm", "-cpu", "host"],
        false => &["-accel", "tcg,thread=multi", "-cpu", "max"],
    };
    command.args(processor).args(["-m", "192", "-nodefaults", "-display", "none"]);
    command.args(["-no-reboot", "-kernel", "kernel"]).current_dir(folder());
    command.stderr(Stdio::inherit());
}

/// The lines of a stream, as they come.
fn lines(from: impl std::io::Read + Send + 'static) -> Receiver<String> {
    let (sender, receiver) = channel();
    std::thread::spawn(move || {
        for line in BufReader::new(from).lines().map_while(Result::ok) {
            // The receiver is gone: the guest is being dropped.
            let Ok(()) = sender.send(line.trim_end().to_owned()) else { return };
        }
    });
    receiver
}

/// Connects to QEMU's monitor; names of abstract sockets belong to a namespace.
fn connect(namespace: &Namespace, name: &str) -> UnixStream {
    let address = SocketAddr::from_abstract_name(name).unwrap();
    let end = Instant::now() + PATIENCE;
    let monitor = loop {
        match namespace.within(|| UnixStream::connect_addr(&address)) {
            Ok(monitor) => break monitor,
            Err(error) => assert!(Instant::now() < end, "QEMU's monitor: {error}"),
        }
        std::thread::sleep(Duration::from_millis(20));
    };
    // The monitor echoes everything; the echo is read so that it does not block.
    let mut echo = monitor.try_clone().unwrap();
    std::thread::spawn(move || {
        let mut buffer = [0; 256];
        while echo.read(&mut buffer).is_ok_and(|count| count > 0) {}
    });
    monitor
}

/// Whether KVM runs a kernel here. That `/dev/kvm` can be opened does not say so: in virtual
/// machines of some clouds a guest starts, and never gets anywhere.
fn has_kvm() -> bool {
    static ANSWER: OnceLock<bool> = OnceLock::new();
    *ANSWER.get_or_init(|| {
        let kvm = std::fs::OpenOptions::new().read(true).write(true).open("/dev/kvm");
        if kvm.is_err() {
            return false;
        }
        let mut command = Command::new(QEMU);
        machine(&mut command, true);
        command.args(["-append", &format!("{BOOT} earlyprintk=ttyS0"), "-serial", "stdio"]);
        let command = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut qemu = command.spawn().unwrap();
        let lines = lines(qemu.stdout.take().unwrap());
        let end = Instant::now() + Duration::from_secs(3);
        let left = || end.saturating_duration_since(Instant::now());
        let mut said = std::iter::from_fn(|| lines.recv_timeout(left()).ok());
        let works = said.any(|line| line.contains("Linux version"));
        let _gone = qemu.kill();
        let _status = qemu.wait();
        works
    })
}

/// The initramfs, or one with these files behind it: the kernel unpacks one archive after another.
fn with_files(name: &str, files: &[PathBuf]) -> PathBuf {
    let plain = folder().join("initramfs.gz");
    if files.is_empty() {
        return plain;
    }
    let (tree, whole) =
        (folder().join(format!("{name}.tree")), folder().join(format!("{name}.gz")));
    std::fs::create_dir_all(tree.join("bin")).unwrap();
    for file in files {
        std::fs::copy(file, tree.join("bin").join(file.file_name().unwrap())).unwrap();
    }
    let script = "cd \"$1\" && find . | busybox cpio -o -H newc 2>/dev/null | gzip -1";
    let packed = Command::new("sh").args(["-c", script, "sh"]).arg(&tree).output().unwrap();
    assert!(packed.status.success(), "{packed:?}");
    std::fs::remove_dir_all(&tree).unwrap();
    std::fs::write(&whole, [std::fs::read(plain).unwrap(), packed.stdout].concat()).unwrap();
    whole
}

/// Folder of the kernel, the initramfs and the guests' consoles.
fn folder() -> PathBuf {
    PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("guest")
}

/// Builds them, where they are not up to date.
fn image() -> &'static Result<(), String> {
    static IMAGE: OnceLock<Result<(), String>> = OnceLock::new();
    IMAGE.get_or_init(|| {
        let script = sources::repository().join("tests/guest/build-image.sh");
        let output = Command::new(script).arg(folder()).output();
        let output = output.map_err(|error| format!("build-image.sh: {error}"))?;
        let text = String::from_utf8_lossy(&output.stderr);
        match output.status.code() {
            Some(0) => Ok(()),
            // Something is missing, and it says what.
            Some(3) => Err(text.trim().to_owned()),
            _ => panic!("build-image.sh: {text}"),
        }
    })
}
