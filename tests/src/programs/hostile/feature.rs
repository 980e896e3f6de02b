//! What a program makes use of, to count which combinations were really executed.

macro_rules! features {
    ($($(#[$doc:meta])+ $name:ident,)+) => {
        /// One kind of use; [`Feature::ALL`] has them in order.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        #[repr(u8)]
        pub enum Feature {
            $($(#[$doc])+ $name,)+
        }

        impl Feature {
            /// How many there are.
            pub const COUNT: usize = Feature::ALL.len();

            /// All of them.
            pub const ALL: &[Feature] = &[$(Feature::$name,)+];
        }
    };
}

features! {
    /// A call of a static function came back.
    Subprogram,
    /// A call of a global function came back.
    Global,
    /// A tail call of the entry function was tried.
    TailCall,
    /// A tail call in another function was tried.
    TailCallInside,
    /// A number from a function that may tail-call was used as an index.
    ResultUsed,
    /// Stack that a function may have written was used as an index.
    WrittenByCallee,
    /// A value of an inner map was touched.
    Inner,
    /// An element of an iterator was touched.
    Iterator,
    /// An object was touched.
    Object,
    /// An object of a map value was touched.
    Kptr,
    /// A list or a tree was changed.
    Graph,
    /// A dynptr was used.
    Dynptr,
    /// A lock was held.
    Lock,
    /// A read section, or one without preemption or interrupts.
    Section,
    /// A callback ran.
    Callback,
    /// Something was thrown, or could have been.
    Throw,
    /// An arena was touched.
    Arena,
    /// A function with a stack of its own size (`bpf_prog` of 256 bytes and more).
    DeepStack,
    /// A timer was set.
    Timer,
    /// A ring buffer record was touched.
    Record,
    /// A loop that only `may_goto` ends.
    MayGoto,
    /// A loop that counts.
    Loop,
    /// A map value at a computed offset.
    ValueAt,
    /// Stack at a computed offset.
    StackAt,
    /// A packet at a computed offset.
    PacketAt,
    /// A helper that got a computed size.
    Sized,
    /// A change of the packet's bounds.
    Moved,
    /// An atomic operation that gives the old value.
    Fetch,
    /// A number that was bounded through another one.
    Linked,
    /// A number that was on the stack in pieces.
    Pieces,
    /// A pointer that was kept while other statements ran.
    KeptPointer,
    /// A branch that cannot be taken.
    Dead,
}
