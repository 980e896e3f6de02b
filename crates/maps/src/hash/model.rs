//! The protocol of buckets and reclamation, checked by loom in every interleaving of two threads:
//! `RUSTFLAGS="--cfg loom" cargo test --release -p towpath-maps --lib model`.

use std::sync::Arc;

use super::hasher::Hasher;
use super::pool::{NIL, header};
use super::table::Table;
use crate::qsbr::Domain;
use crate::sync::Ordering;

/// A key and its hash, whose lowest bit is the bucket.
type Keyed = ([u8; 8], u32);
const KEY: Keyed = (1u64.to_ne_bytes(), 0);
const SAME_BUCKET: Keyed = (2u64.to_ne_bytes(), 2);
const OTHER_BUCKET: Keyed = (3u64.to_ne_bytes(), 1);

/// A table for this many elements.
fn table(elements: u32) -> (Arc<Table>, Arc<Domain>) {
    let domain = Domain::new(1);
    let table = Table::new(elements, 0, 8, 8, Hasher::Number, domain.clone()).unwrap();
    (Arc::new(table), domain)
}

/// As `HashTable::insert`: a new element replaces the old one.
fn put(table: &Table, (key, hash): Keyed, value: u64) {
    let bucket = table.lock(hash);
    let old = bucket.find(hash, &key);
    let new = table.pool.take(usize::MAX).expect("an element is free or waits");
    table.pool.region.word(table.value_offset(new)).store(value, Ordering::Relaxed);
    bucket.link(new, hash, &key, 0);
    if old != NIL {
        assert!(bucket.unlink(old));
        drop(bucket);
        table.pool.retire(usize::MAX, old);
    }
}

/// As `HashTable::remove`.
fn remove(table: &Table, (key, hash): Keyed) {
    let bucket = table.lock(hash);
    let old = bucket.find(hash, &key);
    assert!(bucket.unlink(old));
    drop(bucket);
    table.pool.retire(usize::MAX, old);
}

fn find(table: &Table, (key, hash): Keyed) -> u32 {
    table.find(hash, &key)
}

fn value(table: &Table, element: u32) -> u64 {
    table.pool.region.word(table.value_offset(element)).load(Ordering::Relaxed)
}

#[test]
fn a_key_that_is_replaced_is_always_found() {
    loom::model(|| {
        let (table, _domain) = table(3);
        put(&table, KEY, 10);
        let writer = {
            let table = table.clone();
            loom::thread::spawn(move || put(&table, KEY, 11))
        };
        let found = find(&table, KEY);
        assert_ne!(found, NIL);
        assert!(matches!(value(&table, found), 10 | 11));
        writer.join().unwrap();
    });
}

#[test]
fn an_element_stays_as_it_is_while_a_reader_may_hold_it() {
    loom::model(|| {
        let (table, domain) = table(3);
        put(&table, KEY, 10);
        // The worker has been around before.
        domain.quiesce(0);
        let writer = {
            let table = table.clone();
            loom::thread::spawn(move || {
                put(&table, KEY, 11);
                put(&table, KEY, 12);
                put(&table, KEY, 13);
            })
        };
        let reuses = table.pool.reuses();
        let found = find(&table, KEY);
        let first = value(&table, found);
        let second = value(&table, found);
        crate::sync::fence(Ordering::Acquire);
        if table.pool.reuses() == reuses {
            assert_eq!(first, second);
        }
        domain.quiesce(0);
        writer.join().unwrap();
    });
}

#[test]
fn a_walk_that_reuse_led_astray_starts_again() {
    loom::model(|| {
        // No spare element: the new key gets, at once, the element of the removed one, and with it
        // a reader who stands there is led into the other bucket.
        let (table, _domain) = table(2);
        put(&table, KEY, 10);
        put(&table, SAME_BUCKET, 20);
        let writer = {
            let table = table.clone();
            loom::thread::spawn(move || {
                remove(&table, SAME_BUCKET);
                put(&table, OTHER_BUCKET, 30);
            })
        };
        let found = find(&table, KEY);
        assert_ne!(found, NIL, "KEY is there all the time");
        assert_eq!(value(&table, found), 10);
        writer.join().unwrap();
        assert_eq!(find(&table, SAME_BUCKET), NIL);
        let state = table.pool.header(find(&table, OTHER_BUCKET), header::STATE);
        assert_eq!(state.load(Ordering::Relaxed), header::LINKED);
    });
}

#[test]
fn who_has_a_place_to_come_gets_it() {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(3);
    model.check(|| {
        // One place for each of two threads, and no more of them.
        let (table, _domain) = table(2);
        let come_and_go = |table: &Table, worker| {
            for _ in 0..2 {
                let place = table.pool.take_place(worker).expect("one of two is free");
                table.pool.retire(worker, place);
            }
        };
        let other = {
            let table = table.clone();
            loom::thread::spawn(move || come_and_go(&table, usize::MAX))
        };
        come_and_go(&table, 0);
        other.join().unwrap();
        assert_eq!(table.pool.taken(), 0);
        let all = [0, 1].map(|_| table.pool.take_place(0).expect("nothing is lost"));
        assert_ne!(all[0], all[1]);
        assert_eq!(table.pool.take_place(0), None);
    });
}
