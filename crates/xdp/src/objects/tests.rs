use super::*;

/// A class of objects of `bytes` bytes with owning `fields`.
fn class(
    objects: &Objects,
    bytes: usize,
    fields: &[(FieldKind, u32)],
    domain: &Domain,
) -> Arc<Class> {
    let field = |&(kind, offset)| Field { kind, offset, size: 16 };
    let fields = fields.iter().map(field).collect();
    let shape = Shape { bytes, is_counted: true, fields, ..Shape::default() };
    objects.class(shape, domain)
}

/// Whether `len` bytes at `addr` lie in one object.
fn owns(objects: &Objects, addr: u64, len: u64) -> bool {
    objects.chunk(addr).is_some_and(|chunk| chunk.has_object(addr, len))
}

fn set(object: Object<'_>, offset: u64, value: u64) {
    let word = object.word(offset as usize).expect("inside");
    word.store(value, std::sync::atomic::Ordering::Relaxed);
}

#[test]
fn what_an_object_holds_goes_with_it() {
    let (objects, domain) = (Objects::default(), Domain::new(1));
    let plain = class(&objects, 64, &[], &domain);
    let holder = class(&objects, 64, &[(FieldKind::Kptr, 8)], &domain);
    let inner = objects.allocate(&plain, 0, &domain).expect("room");
    let outer = objects.allocate(&holder, 0, &domain).expect("room");
    set(outer, 8, inner.addr());
    assert!(inner.acquire(), "a second reference, the program's");
    objects.release(outer, 0);
    assert!(!outer.acquire());
    assert!(owns(&objects, inner.addr(), 64), "the program still has one");
    assert!(inner.acquire());
    objects.release(inner, 0);
    objects.release(inner, 0);
    assert!(!inner.acquire());
    assert!(owns(&objects, inner.addr(), 64), "until readers have passed");
    assert!(!owns(&objects, inner.addr(), 65));
}

#[test]
fn memory_is_used_again_when_readers_have_passed() {
    let (objects, domain) = (Objects::default(), Domain::new(1));
    let class = class(&objects, 4096, &[], &domain);
    let mut seen = std::collections::BTreeSet::new();
    for _ in 0..10_000 {
        domain.quiesce(0);
        let object = objects.allocate(&class, 0, &domain).expect("room");
        assert_eq!(
            object.word(4088).map(|word| word.load(std::sync::atomic::Ordering::Relaxed)),
            Some(0)
        );
        set(object, 4088, 7);
        seen.insert(object.addr());
        objects.release(object, 0);
    }
    assert!(seen.len() < 200, "{} slots", seen.len());
    let gone = *seen.first().expect("some");
    assert!(seen.iter().any(|&addr| !owns(&objects, addr, 1)) || owns(&objects, gone, 1));
}

#[test]
fn a_worker_that_only_gives_up_feeds_one_that_only_makes() {
    let (objects, domain) = (Objects::default(), Domain::new(2));
    let class = class(&objects, 64, &[], &domain);
    let mut seen = std::collections::BTreeSet::new();
    for _ in 0..100_000 {
        [0, 1].iter().for_each(|worker| domain.quiesce(*worker));
        let object = objects.allocate(&class, 0, &domain).expect("room");
        seen.insert(object.addr());
        objects.release(object, 1);
        // A worker inspects its own lists when it makes an object.
        let own = objects.allocate(&class, 1, &domain).expect("room");
        objects.release(own, 1);
    }
    assert!(seen.len() < 10_000, "{} slots", seen.len());
}

#[test]
fn lists_and_trees_are_given_up_and_cannot_lead_astray() {
    let (objects, domain) = (Objects::default(), Domain::new(1));
    let class = class(&objects, 64, &[], &domain);
    let (head, root) = (0x1000, 0x2000);
    let made = || objects.allocate(&class, 0, &domain).expect("room");
    // A list of two nodes whose end leads back to its first node, and a node that is in another
    // list.
    let [first, second, other] = [made(), made(), made()];
    for (node, next, owner) in
        [(first, second, head), (second, first, head), (other, first, 0x3000)]
    {
        set(node, list::NEXT, next.addr());
        set(node, list::OWNER, owner);
    }
    objects.release_content(FieldKind::ListHead, head, first.addr());
    objects.release_content(FieldKind::ListHead, head, other.addr());
    assert_eq!([first, second, other].map(Object::acquire), [false, false, true]);
    // A tree in which a leaf's child is its ancestor.
    let [top, left, right] = [made(), made(), made()];
    for (node, below) in
        [(top, [left.addr(), right.addr()]), (left, [top.addr(), 0]), (right, [8, 1])]
    {
        set(node, tree::LEFT, below[0]);
        set(node, tree::RIGHT, below[1]);
        set(node, tree::OWNER, root);
    }
    objects.release_content(FieldKind::RbRoot, root, top.addr());
    assert_eq!([top, left, right].map(Object::acquire), [false; 3]);
    for nowhere in [1, u64::MAX, u64::MAX - 8, top.addr() + 56, top.addr() + 1] {
        objects.release_content(FieldKind::ListHead, head, nowhere);
        objects.release_content(FieldKind::Kptr, head, nowhere.wrapping_add(1));
    }
}

#[test]
fn a_cipher_goes_when_nobody_can_use_it() {
    use crate::crypto::{Cipher, live};
    let (objects, domain) = (Objects::default(), Domain::new(1));
    let hidden_bytes = size_of::<Hidden>();
    let shape =
        Shape { bytes: 40, hidden_bytes, is_counted: true, has_cipher: true, ..Shape::default() };
    let class = objects.class(shape, &domain);
    let made = || {
        let object = objects.allocate(&class, 0, &domain).expect("room");
        let cipher = Cipher::new(b"cbc(aes)", &[7; 16]).expect("a cipher");
        object.set_cipher(Box::new(cipher));
        object
    };
    let first = made();
    assert!(first.acquire(), "a second reference");
    objects.release(first, 0);
    assert_eq!(live(), 1);
    objects.release_content(FieldKind::Kptr, 0x1000, first.addr());
    assert_eq!(live(), 1, "a worker may still use it");
    // Each new one frees those that no worker can see any more.
    let mut held = Vec::new();
    for _ in 0..100 {
        domain.quiesce(0);
        held.push(made());
        objects.release(made(), 0);
    }
    assert!((100..110).contains(&live()), "{}", live());
    held.drain(..50).for_each(|object| objects.release(object, 0));
    drop(held);
    drop(objects);
    drop(class);
    assert_eq!(live(), 0, "all go with the store, held or not");
}
