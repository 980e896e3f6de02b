use towpath_bpf::program::{MapDef, MapType};
use towpath_maps::{CreateOptions, Domain};

use super::*;

fn map(capacity: u32, range: u64) -> Arc<Map> {
    let def = MapDef { map_extra: range, ..MapDef::new("q", MapType::PifoXdp, 4, 4, capacity) };
    Map::create(&def, &CreateOptions::new(Domain::new(1))).expect("a good definition")
}

fn frame(number: u8, rank: u32) -> Frame {
    let mut frame = Frame::new(&[number; 60]).expect("a good length");
    frame.set_rank(rank);
    frame
}

fn number(frame: &Frame) -> u8 {
    frame.to_vec()[0]
}

#[test]
fn frames_leave_by_rank_and_the_rest_is_counted() {
    let map = map(3, 8);
    let queue = FrameQueue::of(&map).expect("it is one");
    let mut refused = Vec::new();
    let mut push = |number, rank| {
        queue.push_all(&mut vec![frame(number, rank)], 1000, &mut refused);
    };
    push(1, 5);
    push(2, 0);
    push(3, u32::MAX);
    push(4, 1);
    assert_eq!(map.user().lookup(&[0; 4], 0).expect("users count").bytes(), 3u32.to_le_bytes());
    let pop = |now| queue.pop(now).map(|(frame, rank)| (number(&frame), rank));
    assert_eq!(
        [pop(1100), pop(1100), pop(9000), pop(9000)],
        [Some((2, 0)), Some((1, 5)), Some((3, 15)), None]
    );
    queue.push_all(&mut vec![frame(5, 7)], 9000, &mut refused);
    let errnos: Vec<_> = refused.iter().map(|(frame, errno)| (number(frame), *errno)).collect();
    assert_eq!(errnos, [(4, Errno::EOVERFLOW), (5, Errno::ERANGE)]);
    let QueueStatus { counts, wait_p50_ns, wait_p99_ns } = queue.status();
    assert_eq!(
        counts,
        QueueCounts {
            enqueued: 3,
            dequeued: 3,
            drops_full: 1,
            drops_rank: 1,
            ..QueueCounts::default()
        }
    );
    assert!((100..113).contains(&wait_p50_ns) && (8000..9000).contains(&wait_p99_ns));
}

#[test]
fn a_map_that_goes_gives_its_frames_away() {
    #[derive(Default)]
    struct Kept(Mutex<Vec<Frame>>);

    impl Reclaim for Kept {
        fn take_over(&self, frames: &mut Vec<Frame>) {
            self.0.lock().append(frames);
        }
    }

    let map = map(8, 8);
    let kept = Arc::new(Kept::default());
    let queue = FrameQueue::of(&map).expect("it is one");
    queue.set_reclaimer(&(Arc::clone(&kept) as Arc<dyn Reclaim>));
    queue.push_all(&mut vec![frame(1, 3), frame(2, 2), frame(3, 12)], 0, &mut Vec::new());
    queue.pop(0).expect("there is one");
    drop(map);
    let kept: Vec<u8> = kept.0.lock().iter().map(number).collect();
    assert_eq!(kept, [1, 3]);
}
