//! Programs that use a thing after its end, made of a table: what calls give, what ends it, and in
//! which forms it is used.
//!
//! What a thing hangs on is in the rows of helpers and kfuncs ([`towpath_bpf::proto::Ties`]); the
//! table below has C code for each of them. A twin of each program uses the thing before its end,
//! and shows that nothing else is wrong with it.

use std::fmt::Write as _;

mod table;

pub use table::THINGS;

/// A thing that a call gives.
#[derive(Debug, Clone, Copy)]
pub struct Thing {
    /// A word for it.
    pub name: &'static str,
    /// The calls whose rows it shows.
    pub of: &'static [&'static str],
    /// Type and value of what its end needs, for functions.
    pub handle: [&'static str; 2],
    /// Statements that make it: `p` points to it then, and is not null.
    pub get: &'static str,
    /// Ends it: a statement about `H`, the handle.
    pub end: &'static str,
}

/// How a thing is used after its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    /// In the same function.
    Direct,
    /// Through the stack.
    Spill,
    /// By a function that is given it.
    Reader,
    /// Behind a function that ended it.
    Ender,
    /// By a function that a helper calls.
    Callback,
    /// Behind a helper that calls a function that ended it.
    CallbackEnds,
    /// In the second round of a loop, which ended it in the first.
    SecondRound,
    /// Behind a function that may call another program.
    TailCall,
}

impl Form {
    /// All of them.
    pub const ALL: [Form; 8] = [
        Form::Direct,
        Form::Spill,
        Form::Reader,
        Form::Ender,
        Form::Callback,
        Form::CallbackEnds,
        Form::SecondRound,
        Form::TailCall,
    ];
}

/// All programs as C: `no_*` use a thing after its end, `ok_*` before it.
pub fn source() -> String {
    let mut text = format!("#include \"ends.h\"\n{OF_CALLS}");
    for thing in THINGS {
        thing.write(&mut text);
    }
    text
}

/// What ends with a call of a function: 6.18 lets it live on.
const OF_CALLS: &str = r#"
static long keep_key(void *map, __u32 *key, __u64 *value, struct kept *kept)
{
	kept->p = key;
	return READ(key) == 77;
}

SEC("xdp") int ok_key(struct xdp_md *ctx)
{
	struct kept kept = {};
	return bpf_for_each_map_elem(&hash, keep_key, &kept, 0) == 1;
}

SEC("xdp") int no_key(struct xdp_md *ctx)
{
	struct kept kept = {.p = value(0)};
	if (!kept.p)
		return 0;
	bpf_for_each_map_elem(&hash, keep_key, &kept, 0);
	return READ(kept.p) == 77;
}

static long keep_message(struct bpf_dynptr *message, struct kept *kept)
{
	void *p = bpf_dynptr_data(message, 0, 8);
	if (p)
		kept->p = p;
	return 0;
}

SEC("xdp") int no_message(struct xdp_md *ctx)
{
	struct kept kept = {.p = value(0)};
	if (!kept.p)
		return 0;
	bpf_user_ringbuf_drain(&messages, keep_message, &kept, 0);
	return READ(kept.p) == 77;
}

static __noinline void *part(struct bpf_dynptr *d)
{
	char buffer[16] = {};
	return bpf_dynptr_slice_rdwr(d, 0, buffer, 16);
}

SEC("xdp") int no_buffer_of_a_function(struct xdp_md *ctx)
{
	struct bpf_dynptr d;
	bpf_dynptr_from_xdp(ctx, 0, &d);
	int *p = part(&d);
	return p ? READ(p) == 77 : 0;
}

SEC("xdp") int no_buffer_in_a_record(struct xdp_md *ctx)
{
	struct bpf_dynptr d;
	bpf_dynptr_from_xdp(ctx, 0, &d);
	void *record = bpf_ringbuf_reserve(&ring, 16, 0);
	if (!record)
		return 0;
	int *p = bpf_dynptr_slice_rdwr(&d, 0, record, 16);
	bpf_ringbuf_discard(record, 0);
	return p ? READ(p) == 77 : 0;
}
"#;

impl Thing {
    fn write(&self, text: &mut String) {
        let Thing { name, handle: [ty, _], end, .. } = self;
        let ended = end.replace('H', "handle");
        let _ = writeln!(
            text,
            "static __noinline int end_{name}({ty} handle)\n{{\n\t{ended}\n\treturn 0;\n}}\n\
             static long end_kept_{name}(__u32 index, struct kept *kept)\n{{\n\
             \t{ty} handle = kept->handle;\n\t{ended}\n\treturn 1;\n}}"
        );
        self.program(text, &format!("ok_{name}"), &["r = READ(p);", &self.end_here()]);
        for form in Form::ALL {
            let body = self.body(form);
            let body: Vec<&str> = body.iter().map(String::as_str).collect();
            self.program(text, &format!("no_{name}_{form:?}"), &body);
        }
    }

    /// One program: makes the thing, and does something with it.
    fn program(&self, text: &mut String, name: &str, body: &[&str]) {
        let get = self.get;
        let body = body.join("\n\t");
        let _ = writeln!(
            text,
            "SEC(\"xdp\") int {name}(struct xdp_md *ctx)\n{{\n\tvoid *p;\n\tint r = 0;\n\t{get}\n\
             \tKEEP(p);\n\t{body}\n\treturn r == 77;\n}}"
        );
    }

    fn end_here(&self) -> String {
        self.end.replace('H', self.handle[1])
    }

    /// What ends the thing and then uses it.
    fn body(&self, form: Form) -> Vec<String> {
        let (end, read) = (self.end_here(), "r = READ(p);".to_owned());
        let [_, handle] = self.handle;
        let kept = format!(
            "struct kept kept = {{p, (void *){handle}}}; asm volatile(\"\" : : \
                            \"r\"(&kept) : \"memory\");"
        );
        let name = self.name;
        match form {
            Form::Direct => vec![end, read],
            Form::Spill => vec![kept, end, "p = *(void *volatile *)&kept.p;".to_owned(), read],
            Form::Reader => vec![end, "r = read_it(p);".to_owned()],
            Form::Ender => vec![format!("end_{name}({handle});"), read],
            Form::Callback => {
                vec![kept, end, "bpf_loop(2, read_kept, &kept, 0);".to_owned()]
            }
            Form::CallbackEnds => {
                vec![kept, format!("bpf_loop(1, end_kept_{name}, &kept, 0);"), read]
            }
            Form::SecondRound => vec![
                "#pragma clang loop unroll(disable)\n\tfor (int i = 0; i < 2; i++) {".to_owned(),
                "\tbarrier_var(i); KEEP(p);".to_owned(),
                "\tr += READ(p);".to_owned(),
                format!("\tif (i == 0) {{ {end} }}"),
                "}".to_owned(),
            ],
            Form::TailCall => vec![end, "tail(ctx);".to_owned(), read],
        }
    }
}
