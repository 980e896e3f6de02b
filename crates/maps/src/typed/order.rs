//! An order of keys for people: the same each time, whatever a hash map's own order is.

use std::cmp::Ordering;

use serde_json::{Number, Value as Json};

/// Numbers by value, text by its bytes, structs and arrays by their first member that differs.
#[must_use]
pub fn key_order(one: &Json, other: &Json) -> Ordering {
    match (one, other) {
        (Json::Number(one), Json::Number(other)) => number_order(one, other),
        (Json::String(one), Json::String(other)) => one.cmp(other),
        (Json::Bool(one), Json::Bool(other)) => one.cmp(other),
        (Json::Array(one), Json::Array(other)) => first_difference(one.iter(), other.iter()),
        (Json::Object(one), Json::Object(other)) => first_difference(one.values(), other.values()),
        _ => rank(one).cmp(&rank(other)),
    }
}

fn first_difference<'a>(
    one: impl ExactSizeIterator<Item = &'a Json>,
    other: impl ExactSizeIterator<Item = &'a Json>,
) -> Ordering {
    let lengths = one.len().cmp(&other.len());
    let mut orders = one.zip(other).map(|(one, other)| key_order(one, other));
    orders.find(|order| order.is_ne()).unwrap_or(lengths)
}

fn number_order(one: &Number, other: &Number) -> Ordering {
    match (one.as_i128(), other.as_i128()) {
        (Some(one), Some(other)) => one.cmp(&other),
        _ => one.as_f64().unwrap_or(0.0).total_cmp(&other.as_f64().unwrap_or(0.0)),
    }
}

/// The order of values of different kinds.
fn rank(json: &Json) -> u8 {
    match json {
        Json::Null => 0,
        Json::Bool(_) => 1,
        Json::Number(_) => 2,
        Json::String(_) => 3,
        Json::Array(_) => 4,
        Json::Object(_) => 5,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn keys_are_in_the_order_of_what_they_say() {
        let sorted = [
            json!(null),
            json!(-3),
            json!(2),
            json!(10),
            json!(u64::MAX),
            json!("10.0.0.2"),
            json!("9"),
            json!([1, 2]),
            json!([1, 2, 0]),
            json!([1, 10]),
            json!({"port": 9, "address": 1}),
            json!({"port": 80, "address": 0}),
        ];
        let mut keys = sorted.to_vec();
        keys.reverse();
        keys.sort_by(key_order);
        assert_eq!(keys, sorted);
    }
}
