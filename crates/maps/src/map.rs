//! One map: its definition, its storage and the operations that every kind shares.

use std::ops::ControlFlow;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::Relaxed};

use towpath_bpf::map::Values;
use towpath_bpf::program::{DataSection, MapType};
use towpath_bpf::{Errno, MapDef};

use crate::absent::Absent;
use crate::access::{Access, Part, Span};
use crate::arena::Arena;
use crate::array::Array;
use crate::bloom::Bloom;
use crate::environment::{AnyEnvironment, Environment};
use crate::error::MapError;
use crate::fields::{Field, Fields, ReleaseField};
use crate::flags::{BPF_F_RDONLY, BPF_F_RDONLY_PROG, BPF_F_WRONLY};
use crate::hash::HashTable;
#[cfg(not(loom))]
use crate::hash::view_unsafe::{HashView, KEY_WORDS_MAX};
use crate::inner::MapOfMaps;
use crate::layout::{ArrayView, Layout};
use crate::lpm::LpmTrie;
use crate::memory::{POPULATED_STEP_BYTES, REGION_BYTES_MAX};
use crate::perf::PerfEventArray;
use crate::pifo::{PifoGeneric, PifoXdp};
use crate::prog_array::ProgArray;
use crate::qsbr::Domain;
use crate::queue::Queue;
use crate::ringbuf::Ringbuf;
use crate::store::{Element, Store};
use crate::targets::{DevmapHash, TargetArray, TargetEntry};
use crate::user::{User, Value};
use crate::user_ringbuf::UserRingbuf;

/// Options of a map beside its definition. Start from [`CreateOptions::new`].
#[derive(Clone)]
#[non_exhaustive]
pub struct CreateOptions {
    /// The readers: its workers are the CPUs of per-CPU maps. One domain serves all maps that the
    /// same workers use.
    pub domain: Arc<Domain>,
    /// Special fields of the value, from its BTF.
    pub fields: Vec<Field>,
    /// Releases resources owned by special fields.
    pub release: Option<Arc<dyn ReleaseField>>,
    /// The devices, CPUs, programs and sockets that exist.
    pub environment: Arc<dyn Environment>,
    /// `BPF_F_RDONLY` and `BPF_F_WRONLY` are checked and then apply to the users' descriptors only,
    /// as in the kernel. Otherwise they apply to every user of the map.
    pub access_by_handle: bool,
}

impl CreateOptions {
    /// Options without special fields, where every target exists.
    pub fn new(domain: Arc<Domain>) -> Self {
        let environment = Arc::new(AnyEnvironment);
        CreateOptions {
            domain,
            fields: Vec::new(),
            release: None,
            environment,
            access_by_handle: false,
        }
    }
}

/// A BPF map. Programs use it through the methods here, with the number of the worker they run on
/// (below [`Domain::workers`]; anything else panics); user threads through [`Map::user`].
pub struct Map {
    id: u32,
    def: MapDef,
    domain: Arc<Domain>,
    fields: Fields,
    frozen: AtomicBool,
    spans: Box<[Span]>,
    array: ArrayView,
    storage: Storage,
    /// Number of preallocated bytes that are populated so far.
    populated: AtomicU64,
}

impl ArrayView {
    /// Its offset in a map.
    pub const OFFSET: usize = std::mem::offset_of!(Map, array);
}

/// The storage of each kind.
enum Storage {
    Absent(Absent),
    Arena(Arena),
    Array(Array),
    Bloom(Bloom),
    DevmapHash(DevmapHash),
    Hash(HashTable),
    Programs(ProgArray),
    Inner(MapOfMaps),
    Lpm(LpmTrie),
    Perf(PerfEventArray),
    PifoGeneric(PifoGeneric),
    PifoXdp(PifoXdp),
    Queue(Queue),
    Ringbuf(Ringbuf),
    UserRingbuf(UserRingbuf),
    Targets(TargetArray),
}

impl Map {
    /// Creates a map as `BPF_MAP_CREATE` does, with the kernel's checks. As with libbpf, a perf
    /// event array of no size gets a slot for each CPU,
    /// and constant data sections are frozen and read-only for programs.
    pub fn create(def: &MapDef, options: &CreateOptions) -> Result<Arc<Map>, MapError> {
        static NEXT_ID: AtomicU32 = AtomicU32::new(1);
        let mut def = def.clone();
        def.max_entries = def.kind.entries_of(def.max_entries, options.domain.workers());
        let is_constant = def.section.is_some_and(DataSection::is_constant);
        if is_constant {
            def.flags |= BPF_F_RDONLY_PROG;
        }
        def.check().map_err(|broken| MapError::of(&def, broken))?;
        if options.access_by_handle {
            def.flags &= !(BPF_F_RDONLY | BPF_F_WRONLY);
        }
        let fields = Fields::new(options.fields.clone(), options.release.clone());
        let storage = Storage::new(&def, options, &fields).map_err(|_no_memory| {
            let entry = u64::from(def.key_size) + u64::from(def.value_size);
            MapError::Memory {
                map: def.name.clone(),
                bytes: entry.saturating_mul(u64::from(def.max_entries)),
                limit: REGION_BYTES_MAX,
            }
        })?;
        let map = Map {
            id: NEXT_ID.fetch_add(1, Relaxed),
            def,
            domain: options.domain.clone(),
            fields,
            frozen: AtomicBool::new(is_constant),
            spans: storage.as_store().spans().into_boxed_slice(),
            array: ArrayView::of(storage.layout()),
            storage,
            populated: AtomicU64::new(0),
        };
        map.fill_initial()?;
        Ok(Arc::new(map))
    }

    /// Unique number in this process, never 0.
    pub fn id(&self) -> u32 {
        self.id
    }

    /// The definition it was created from.
    pub fn def(&self) -> &MapDef {
        &self.def
    }

    /// Name in the object file.
    pub fn name(&self) -> &str {
        &self.def.name
    }

    /// Kind.
    pub fn kind(&self) -> MapType {
        self.def.kind
    }

    /// Bytes of a key.
    pub fn key_size(&self) -> u32 {
        self.def.key_size
    }

    /// Bytes of a value.
    pub fn value_size(&self) -> u32 {
        self.def.value_size
    }

    /// Capacity; bytes for ring buffers, pages for arenas.
    pub fn max_entries(&self) -> u32 {
        self.def.max_entries
    }

    /// `BPF_F_*` creation flags.
    pub fn flags(&self) -> u32 {
        self.def.flags
    }

    /// Special fields of the value, by offset.
    pub fn fields(&self) -> &[Field] {
        self.fields.list()
    }

    /// Whether values differ from CPU to CPU.
    pub fn is_percpu(&self) -> bool {
        self.def.kind.is_percpu()
    }

    /// Number of CPUs of a per-CPU value: the domain's workers.
    pub fn cpus(&self) -> usize {
        self.domain.workers()
    }

    /// The readers of this map.
    pub fn domain(&self) -> &Arc<Domain> {
        &self.domain
    }

    /// The number that stands for this map in a program's register. No program may read memory at
    /// this address.
    pub fn handle(&self) -> u64 {
        std::ptr::from_ref(self).expose_provenance() as u64
    }

    /// Bytes of memory that its elements take, those that are free as well.
    pub fn memory_bytes(&self) -> u64 {
        let elements = self.spans.iter().map(|span| span.bytes).sum();
        match &self.storage {
            Storage::Arena(arena) => arena.reach().1 - arena.reach().0,
            _ => elements,
        }
    }

    /// Bytes of memory that are populated, and all bytes that the kernel allocates when it creates
    /// such a map; `None` for kinds whose memory comes with their elements.
    pub fn population(&self) -> Option<(u64, u64)> {
        let all: u64 = self.store().preallocated().iter().map(|region| region.len() as u64).sum();
        (all > 0).then(|| (self.populated.load(Relaxed).min(all), all))
    }

    /// Populates the next part of this memory, so that no insertion waits for it; returns whether
    /// more is left. Takes some 0.1 ms, and may be called beside programs; by one thread at a time.
    pub fn populate_step(&self) -> bool {
        let (done, mut at) = (self.populated.load(Relaxed), 0);
        for region in self.store().preallocated() {
            let len = region.len() as u64;
            if done < at + len {
                let step = (at + len - done).min(POPULATED_STEP_BYTES as u64);
                region.populate((done - at) as usize, step as usize);
                self.populated.store(done + step, Relaxed);
                return true;
            }
            at += len;
        }
        false
    }

    /// Elements in the map; `None` for kinds that don't count.
    pub fn count(&self) -> Option<u64> {
        self.store().count()
    }

    // --- What programs do ---

    /// `bpf_map_lookup_elem`: where the value lies. It stays readable until the worker's next
    /// [`Domain::quiesce`].
    pub fn lookup(&self, worker: usize, key: &[u8]) -> Option<NonNull<u8>> {
        if key.len() != self.def.key_size as usize {
            return None;
        }
        self.store().lookup(worker, key)
    }

    /// `bpf_map_lookup_percpu_elem`: where the value of another CPU lies.
    pub fn lookup_percpu(&self, key: &[u8], cpu: u32) -> Option<NonNull<u8>> {
        if key.len() != self.def.key_size as usize {
            return None;
        }
        self.store().lookup_percpu(key, cpu)
    }

    /// `bpf_map_update_elem`
    pub fn update(&self, worker: usize, key: &[u8], value: &[u8], flags: u64) -> Result<(), Errno> {
        self.check_key(key)?;
        self.check_size(value.len())?;
        self.store().update(worker, key, value, flags)
    }

    /// `bpf_map_delete_elem`
    pub fn delete(&self, worker: usize, key: &[u8]) -> Result<(), Errno> {
        self.check_key(key)?;
        self.store().delete(worker, key)
    }

    /// `bpf_map_push_elem`
    pub fn push(&self, value: &[u8], flags: u64) -> Result<(), Errno> {
        self.check_size(value.len())?;
        self.store().push(value, flags)
    }

    /// `bpf_map_pop_elem`: into `out`, of the size of a value. On failure `out` is zeroed.
    pub fn pop(&self, out: &mut [u8]) -> Result<(), Errno> {
        self.check_size(out.len())?;
        self.store().pop(out)
    }

    /// `bpf_map_peek_elem`: for a bloom filter `out` is the value to look for.
    pub fn peek(&self, out: &mut [u8]) -> Result<(), Errno> {
        self.check_size(out.len())?;
        self.store().peek(out)
    }

    /// `bpf_for_each_map_elem` without its flags: calls `visit` for each element until it breaks,
    /// and gives the number of elements visited. `visit` may use the map.
    pub fn for_each(
        &self,
        worker: usize,
        mut visit: impl FnMut(Element<'_>) -> ControlFlow<()>,
    ) -> Result<u64, Errno> {
        self.store().for_each(worker, &mut visit)
    }

    /// The result of `look` for the element whose value contains an address: arrays and hash tables
    /// that aren't per-CPU find it by its address. It doesn't count as used.
    pub fn element_at<T>(&self, address: u64, mut look: impl FnMut(Element<'_>) -> T) -> Option<T> {
        let mut seen = None;
        self.store().element_at(address, &mut |element| seen = Some(look(element)));
        seen
    }

    /// The id of the program in a slot of a PROG_ARRAY; `None` also for other kinds.
    pub fn program(&self, index: u32) -> Option<u32> {
        self.programs()?.program(index)
    }

    /// Puts a program's id (0: none) into a slot of a PROG_ARRAY, without asking the environment.
    pub fn set_program(&self, index: u32, id: u32) -> Result<(), Errno> {
        self.programs().ok_or(Errno::EINVAL)?.set(index, id)?;
        Ok(())
    }

    pub(crate) fn programs(&self) -> Option<&ProgArray> {
        match &self.storage {
            Storage::Programs(programs) => Some(programs),
            _ => None,
        }
    }

    /// The entry of a DEVMAP, DEVMAP_HASH, CPUMAP or XSKMAP that `bpf_redirect_map` asks for. A
    /// PIFO_XDP takes any rank; whether that fits is found out when the packet comes.
    #[inline]
    pub fn target(&self, key: u32) -> Option<TargetEntry> {
        match &self.storage {
            Storage::PifoXdp(_) => Some(TargetEntry { number: 0, id: 0 }),
            Storage::Targets(targets) => targets.target(key),
            Storage::DevmapHash(table) => table.target(key),
            _ => None,
        }
    }

    /// Passes all entries of such a map with their keys to a function, in the order of a broadcast.
    pub fn for_each_target(&self, visit: &mut dyn FnMut(u32, TargetEntry)) {
        match &self.storage {
            Storage::Targets(targets) => targets.for_each(visit),
            Storage::DevmapHash(table) => table.for_each(visit),
            _ => {}
        }
    }

    /// As above, as a list.
    pub fn targets(&self) -> Vec<(u32, TargetEntry)> {
        let mut targets = Vec::new();
        self.for_each_target(&mut |key, target| targets.push((key, target)));
        targets
    }

    /// Clears all entries of an XSKMAP that lead to a socket that was closed, given by its id.
    pub fn forget(&self, socket: u32) {
        if let Storage::Targets(targets) = &self.storage
            && self.kind().values() == Values::Socket
        {
            targets.forget(socket);
        }
    }

    /// Puts a map into a slot of a map of maps, as user space does with a descriptor. `EINVAL` when
    /// it isn't shaped like the template, or this is no map of maps.
    pub fn insert_inner(&self, key: &[u8], inner: &Arc<Map>, flags: u64) -> Result<(), Errno> {
        self.check_key(key)?;
        self.inner_maps().ok_or(Errno::EINVAL)?.insert(key, inner, flags)
    }

    /// The map in a slot of a map of maps.
    pub fn inner(&self, key: &[u8]) -> Option<Arc<Map>> {
        self.inner_maps()?.inner(key)
    }

    /// The inner map that a handle from [`Map::lookup`] stands for.
    pub fn inner_by_handle(&self, handle: u64) -> Option<Arc<Map>> {
        self.inner_maps()?.by_handle(handle)
    }

    /// An ARENA's own operations.
    pub fn arena(&self) -> Option<&Arena> {
        if let Storage::Arena(arena) = &self.storage { Some(arena) } else { None }
    }

    /// Addresses of the map's memory, for kinds whose operations a compiler may inline.
    pub fn layout(&self) -> Option<Layout> {
        self.storage.layout()
    }

    /// The value of the longest prefix in an LPM_TRIE, for a key given by the words it has in
    /// memory, the last one filled up with zeroes; `None` also for other kinds and for keys of
    /// another number of words.
    #[inline]
    pub fn longest_prefix<const WORDS: usize>(&self, key: [u64; WORDS]) -> Option<NonNull<u8>> {
        match &self.storage {
            Storage::Lpm(trie) => trie.longest_prefix(key),
            _ => None,
        }
    }

    /// The view for look-ups by words in a HASH, LRU_HASH or per-CPU one, or in the handles of a
    /// HASH_OF_MAPS; `None` when its keys have more than [`KEY_WORDS_MAX`] words, or are hashed as
    /// the kernel does (`BPF_F_ZERO_SEED`).
    #[cfg(not(loom))]
    pub fn hash_view(&self) -> Option<&HashView> {
        let fits = self.def.key_size as usize <= KEY_WORDS_MAX * 8;
        self.hash_table().filter(|_| fits)?.view()
    }

    /// Buckets of a hash table, whose number is a batch's cursor; `None` for other kinds.
    pub fn buckets(&self) -> Option<u32> {
        self.hash_table().map(HashTable::buckets)
    }

    /// The keys in a bucket below [`Map::buckets`].
    pub fn bucket_keys(&self, bucket: u32) -> Vec<Vec<u8>> {
        self.hash_table().map_or(Vec::new(), |table| table.bucket_keys(bucket))
    }

    #[inline]
    fn hash_table(&self) -> Option<&HashTable> {
        match &self.storage {
            Storage::Hash(table) => Some(table),
            Storage::Inner(maps) => maps.table(),
            _ => None,
        }
    }

    /// A RINGBUF's own operations.
    pub fn ringbuf(&self) -> Option<&Ringbuf> {
        if let Storage::Ringbuf(ring) = &self.storage { Some(ring) } else { None }
    }

    /// A USER_RINGBUF's own operations.
    pub fn user_ringbuf(&self) -> Option<&UserRingbuf> {
        if let Storage::UserRingbuf(ring) = &self.storage { Some(ring) } else { None }
    }

    /// A PERF_EVENT_ARRAY's own operations.
    pub fn perf(&self) -> Option<&PerfEventArray> {
        if let Storage::Perf(perf) = &self.storage { Some(perf) } else { None }
    }

    /// The packets of a PIFO_XDP.
    #[inline]
    pub fn pifo(&self) -> Option<&PifoXdp> {
        if let Storage::PifoXdp(pifo) = &self.storage { Some(pifo) } else { None }
    }

    /// Takes all records that programs sent through this map: of a ring buffer, or of a perf event
    /// array by slot. Other kinds have none.
    pub fn take_records(&self, mut visit: impl FnMut(&[u8])) {
        if let Some(ring) = self.ringbuf() {
            ring.consume(|record| {
                visit(record);
                ControlFlow::Continue(())
            });
        }
        if let Some(perf) = self.perf() {
            for slot in 0..perf.slots() {
                while let Some(sample) = perf.read(slot) {
                    visit(&sample);
                }
            }
        }
    }

    /// A program's access to `len` bytes at `addr`; `None` when they aren't this map's, or not
    /// inside one key or value.
    pub fn owns(&self, addr: u64, len: usize) -> Option<Access> {
        match &self.storage {
            Storage::Arena(arena) => arena.owns(addr, len as u64),
            _ => self.part(addr, len).map(|part| part.access),
        }
    }

    /// The key or value that `len` bytes at `addr` lie in. It stays one as long as the map lives;
    /// `None` for arenas, whose pages come and go.
    pub fn part(&self, addr: u64, len: usize) -> Option<Part> {
        self.spans.iter().find_map(|span| span.part(addr, len as u64))
    }

    /// Whether `BPF_F_LOCK` works: the value has a `bpf_spin_lock`.
    pub fn has_lock(&self) -> bool {
        self.fields.has_lock()
    }

    // --- What users do ---

    /// The user side. The calling thread counts as a reader as long as the result lives.
    pub fn user(&self) -> User<'_> {
        User { map: self, _reader: self.domain.guard() }
    }

    /// `BPF_MAP_FREEZE`: user space can no longer write. `EBUSY` when it is frozen already,
    /// `ENOTSUPP` when values have special fields.
    pub fn freeze(&self) -> Result<(), Errno> {
        if !self.fields.list().is_empty() {
            return Err(Errno::ENOTSUPP);
        }
        if self.frozen.swap(true, Relaxed) { Err(Errno::EBUSY) } else { Ok(()) }
    }

    /// Whether [`Map::freeze`] was called.
    pub fn is_frozen(&self) -> bool {
        self.frozen.load(Relaxed)
    }

    // --- For the rest of the crate ---

    pub(crate) fn store(&self) -> &dyn Store {
        self.storage.as_store()
    }

    pub(crate) fn inner_maps(&self) -> Option<&MapOfMaps> {
        if let Storage::Inner(maps) = &self.storage { Some(maps) } else { None }
    }

    /// First and last address of each part of the map's memory.
    pub(crate) fn places(&self) -> impl Iterator<Item = (u64, u64)> {
        let spans = self.spans.iter().map(|span| (span.base, span.base + (span.bytes - 1)));
        spans.chain(self.arena().map(Arena::reach))
    }

    /// Checks a value that user space stores.
    pub(crate) fn check_value(&self, value: &Value) -> Result<(), Errno> {
        let cpus_fit = match value {
            Value::One(_) => !self.is_percpu(),
            Value::PerCpu(all) => self.is_percpu() && all.len() == self.cpus(),
        };
        let size = self.def.value_size as usize;
        let sizes_fit = value.cpus().iter().all(|bytes| bytes.len() == size);
        if cpus_fit && sizes_fit { Ok(()) } else { Err(Errno::EINVAL) }
    }

    pub(crate) fn check_key(&self, key: &[u8]) -> Result<(), Errno> {
        if key.len() == self.def.key_size as usize { Ok(()) } else { Err(Errno::EINVAL) }
    }

    fn check_size(&self, len: usize) -> Result<(), Errno> {
        if len == self.def.value_size as usize { Ok(()) } else { Err(Errno::EINVAL) }
    }

    fn fill_initial(&self) -> Result<(), MapError> {
        let Some(bytes) = &self.def.initial else { return Ok(()) };
        match &self.storage {
            Storage::Array(array) if bytes.len() <= self.def.value_size as usize => {
                array.fill(bytes);
                Ok(())
            }
            _ => Err(MapError::Initial {
                map: self.def.name.clone(),
                bytes: bytes.len(),
                size: self.def.value_size,
            }),
        }
    }
}

impl Storage {
    fn new(def: &MapDef, options: &CreateOptions, fields: &Fields) -> Result<Self, Errno> {
        let cpus = options.domain.workers();
        let environment = || options.environment.clone();
        Ok(match def.kind {
            MapType::Array => Storage::Array(Array::new(def, None, fields.clone())?),
            MapType::PercpuArray => Storage::Array(Array::new(def, Some(cpus), fields.clone())?),
            MapType::Hash
            | MapType::PercpuHash
            | MapType::LruHash
            | MapType::LruPercpuHash
            | MapType::Rhash => {
                Storage::Hash(HashTable::new(def, &options.domain, fields.clone())?)
            }
            MapType::ProgArray => Storage::Programs(ProgArray::new(def, environment())?),
            MapType::Devmap | MapType::Cpumap | MapType::Xskmap => {
                Storage::Targets(TargetArray::new(def, environment())?)
            }
            MapType::DevmapHash => {
                Storage::DevmapHash(DevmapHash::new(def, &options.domain, environment())?)
            }
            MapType::Queue | MapType::Stack => Storage::Queue(Queue::new(def)?),
            MapType::ArrayOfMaps | MapType::HashOfMaps => {
                Storage::Inner(MapOfMaps::new(def, &options.domain)?)
            }
            MapType::Arena => Storage::Arena(Arena::new(def)?),
            MapType::LpmTrie => Storage::Lpm(LpmTrie::new(def, &options.domain)?),
            MapType::Ringbuf => Storage::Ringbuf(Ringbuf::new(def)?),
            MapType::UserRingbuf => Storage::UserRingbuf(UserRingbuf::new(def)?),
            MapType::PerfEventArray => Storage::Perf(PerfEventArray::new(def, cpus)),
            MapType::BloomFilter => Storage::Bloom(Bloom::new(def)?),
            MapType::PifoGeneric => Storage::PifoGeneric(PifoGeneric::new(def)?),
            MapType::PifoXdp => Storage::PifoXdp(PifoXdp::new(def)),
            MapType::CgroupArray
            | MapType::Sockmap
            | MapType::Sockhash
            | MapType::ReuseportSockarray
            | MapType::StackTrace
            | MapType::SkStorage
            | MapType::InodeStorage
            | MapType::TaskStorage
            | MapType::CgrpStorage
            | MapType::CgroupStorage
            | MapType::PercpuCgroupStorage
            | MapType::InsnArray
            | MapType::StructOps => Storage::Absent(Absent::new(def)),
        })
    }

    fn layout(&self) -> Option<Layout> {
        match self {
            Storage::Array(array) => Some(array.layout()),
            Storage::Hash(table) => Some(table.layout()),
            Storage::Inner(maps) => maps.layout(),
            Storage::Targets(targets) => Some(targets.layout()),
            _ => None,
        }
    }

    fn as_store(&self) -> &dyn Store {
        match self {
            Storage::Absent(absent) => absent,
            Storage::Arena(arena) => arena,
            Storage::Array(array) => array,
            Storage::Bloom(bloom) => bloom,
            Storage::DevmapHash(table) => table,
            Storage::Hash(table) => table,
            Storage::Programs(programs) => programs,
            Storage::Inner(maps) => maps,
            Storage::Lpm(trie) => trie,
            Storage::Perf(perf) => perf,
            Storage::PifoGeneric(pifo) => pifo,
            Storage::PifoXdp(pifo) => pifo,
            Storage::Queue(queue) => queue,
            Storage::Ringbuf(ring) => ring,
            Storage::UserRingbuf(ring) => ring,
            Storage::Targets(targets) => targets,
        }
    }
}

impl std::fmt::Debug for Map {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Map")
            .field("id", &self.id)
            .field("name", &self.def.name)
            .field("kind", &self.def.kind)
            .finish_non_exhaustive()
    }
}
