//! No message to the door of IKE daemons makes it panic, and the table has exactly the SAs and
//! policies that the door says it has.

use std::sync::Arc;

use towpath_ipsec::{Table, TableLimits};
use towpath_xfrm::{Client, Door};

#[test]
fn any_datagram() {
    bolero::check!().with_type::<Vec<u8>>().for_each(|bytes| {
        let ends = Ends::new();
        ends.ask(bytes);
    });
}

#[test]
fn messages_with_bytes_changed() {
    let kinds = (KIND_FIRST..KIND_FIRST + 0x1a).collect::<Vec<u16>>();
    type Step = (u8, u8, Vec<(u16, u8)>, u8);
    bolero::check!().with_type::<Vec<Step>>().for_each(|steps| {
        let ends = Ends::new();
        for (kind, flags, changes, cut) in steps.iter().take(32) {
            let kind = kinds[usize::from(*kind) % kinds.len()];
            let mut payload = payload(kind);
            for (at, value) in changes {
                let at = usize::from(*at) % payload.len();
                payload[at] = *value;
            }
            // Most messages are whole.
            if *cut < 32 {
                payload.truncate(payload.len().saturating_sub((*cut).into()));
            }
            ends.ask(&datagram(kind, u16::from(*flags) << 8 | 5, &payload));
        }
    });
}

struct Ends {
    table: Arc<Table>,
    door: Door,
}

impl Ends {
    fn new() -> Ends {
        let table = Arc::new(Table::new(TableLimits { sas: 8, policies: 8 }));
        let door = Door::new(Arc::clone(&table), || 1, |_| {});
        Ends { table, door }
    }

    fn ask(&self, datagram: &[u8]) {
        for answer in self.door.answer(&mut Client::default(), datagram) {
            let len = u32::from_ne_bytes(answer[..4].try_into().expect("a header"));
            assert_eq!(len as usize, answer.len(), "one message");
        }
        let (sas, policies) = self.table.counts();
        let (door_sas, door_policies) = self.door.counts();
        assert_eq!(sas, door_sas);
        assert!(policies <= door_policies, "some are only for received packets");
    }
}

/// A message that the door takes as it is, for kinds that it knows.
fn payload(kind: u16) -> Vec<u8> {
    match kind - KIND_FIRST {
        // NEWSA, UPDSA
        0 | 0xa => [info(), key()].concat(),
        // DELSA, GETSA
        1 | 2 => [&address()[..], &0x1000_u32.to_be_bytes(), &[2, 0, 50, 0]].concat(),
        // NEWPOLICY, UPDPOLICY
        3 | 9 => [&selector()[..], &[0; 104], &[0, 0, 0, 0, 1, 0, 0, 0], &template()].concat(),
        // DELPOLICY, GETPOLICY
        4 | 5 => [&selector()[..], &[0; 4], &[1, 0, 0, 0]].concat(),
        // ALLOCSPI
        6 => [&info()[..], &0x1000_u32.to_ne_bytes(), &0x1003_u32.to_ne_bytes()].concat(),
        _ => vec![0; 64],
    }
}

fn address() -> [u8; 16] {
    let mut address = [0; 16];
    address[..4].copy_from_slice(&[192, 0, 2, 1]);
    address
}

/// `struct xfrm_usersa_info`.
fn info() -> Vec<u8> {
    let mut info = vec![0; 224];
    info[56..72].copy_from_slice(&address());
    info[72..76].copy_from_slice(&0x1000_u32.to_be_bytes());
    info[76] = 50;
    info[80..84].copy_from_slice(&[192, 0, 2, 2]);
    // No limits of bytes and packets.
    info[96..128].fill(0xff);
    info[208] = 7;
    info[212] = 2;
    info[214] = 1;
    info[215] = 32;
    info
}

/// `XFRMA_ALG_AEAD` with a key of AES-GCM.
fn key() -> Vec<u8> {
    let mut name = [0; 64];
    name[..17].copy_from_slice(b"rfc4106(gcm(aes))");
    let len = 4 + 64 + 8 + 20_u16;
    let head = [len.to_ne_bytes(), 18_u16.to_ne_bytes()].concat();
    [&head[..], &name, &160_u32.to_ne_bytes(), &128_u32.to_ne_bytes(), &[7; 20]].concat()
}

/// `struct xfrm_selector`.
fn selector() -> [u8; 56] {
    let mut selector = [0; 56];
    selector[0..4].copy_from_slice(&[10, 2, 0, 0]);
    selector[16..20].copy_from_slice(&[10, 1, 0, 0]);
    selector[40] = 2;
    (selector[42], selector[43]) = (24, 24);
    selector
}

/// `XFRMA_TMPL` with one `struct xfrm_user_tmpl`.
fn template() -> Vec<u8> {
    let mut template = vec![0; 68];
    template[0..4].copy_from_slice(&[68, 0, 5, 0]);
    template[4..20].copy_from_slice(&address());
    template[24] = 50;
    template[28] = 2;
    template[48] = 7;
    template[52] = 1;
    template
}

fn datagram(kind: u16, flags: u16, payload: &[u8]) -> Vec<u8> {
    let len = (16 + payload.len()) as u32;
    let mut bytes = len.to_ne_bytes().to_vec();
    bytes.extend(kind.to_ne_bytes());
    bytes.extend(flags.to_ne_bytes());
    bytes.extend([0; 8]);
    bytes.extend(payload);
    bytes
}

/// `XFRM_MSG_NEWSA`.
const KIND_FIRST: u16 = 0x10;
