//! The protocol of buckets and reclamation, checked by loom in every interleaving of two threads:
//! `RUSTFLAGS="--cfg loom" cargo test --release -p towpath-maps --lib model`.

use std::sync::Arc;

use super::hasher::Hasher;
use super::pool::{NIL, header};
use super::table::Table;
use crate::qsbr::Domain;
use crate::sync::Ordering;

const KEY: [u8; 8] = 1u64.to_ne_bytes();
const OTHER: [u8; 8] = 2u64.to_ne_bytes();
const HASH: u32 = 0;

/// A table of one bucket, so that everything meets.
fn table(elements: u32) -> (Arc<Table>, Arc<Domain>) {
    let domain = Domain::new(1);
    let table = Table::new(1, elements, 8, 8, Hasher::Number, domain.clone()).unwrap();
    (Arc::new(table), domain)
}

/// What `HashTable::insert` does: a new element in the place of the old one.
fn put(table: &Table, key: &[u8; 8], value: u64) {
    let bucket = table.lock(HASH);
    let old = bucket.find(HASH, key);
    let new = table.pool.take(usize::MAX).expect("an element is free or waits");
    table.pool.region.word(table.value_offset(new)).store(value, Ordering::Relaxed);
    bucket.link(new, HASH, key, 0);
    if old != NIL {
        assert!(bucket.unlink(old));
        drop(bucket);
        table.pool.retire(usize::MAX, old);
    }
}

fn value(table: &Table, element: u32) -> u64 {
    table.pool.region.word(table.value_offset(element)).load(Ordering::Relaxed)
}

#[test]
fn a_key_that_is_replaced_is_always_found() {
    loom::model(|| {
        let (table, _domain) = table(3);
        put(&table, &KEY, 10);
        let writer = {
            let table = table.clone();
            loom::thread::spawn(move || put(&table, &KEY, 11))
        };
        let found = table.find(HASH, &KEY);
        assert_ne!(found, NIL);
        assert!(matches!(value(&table, found), 10 | 11));
        writer.join().unwrap();
    });
}

#[test]
fn an_element_stays_as_it_is_while_a_reader_may_hold_it() {
    loom::model(|| {
        let (table, domain) = table(3);
        put(&table, &KEY, 10);
        // The worker has been around before.
        domain.quiesce(0);
        let writer = {
            let table = table.clone();
            loom::thread::spawn(move || {
                put(&table, &KEY, 11);
                put(&table, &KEY, 12);
                put(&table, &KEY, 13);
            })
        };
        let reuses = table.pool.reuses();
        let found = table.find(HASH, &KEY);
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
fn a_walk_over_reused_elements_starts_again() {
    loom::model(|| {
        // No spare element: the second update reuses what the first one replaced, at once.
        let (table, _domain) = table(3);
        put(&table, &KEY, 10);
        put(&table, &OTHER, 20);
        let writer = {
            let table = table.clone();
            loom::thread::spawn(move || {
                put(&table, &OTHER, 21);
                put(&table, &OTHER, 22);
            })
        };
        let found = table.find(HASH, &KEY);
        assert_ne!(found, NIL, "KEY is there all the time");
        assert_eq!(value(&table, found), 10);
        writer.join().unwrap();
        let state = table.pool.header(table.find(HASH, &OTHER), header::STATE);
        assert_eq!(state.load(Ordering::Relaxed), header::LINKED);
    });
}
