//! Connection IDs by which packets reach their server, whatever address a client has.

use std::time::Duration;

use quinn::{ConnectionId, ConnectionIdGenerator};
use quinn_proto::RandomConnectionIdGenerator;
use towpath_udp::ServerId;

/// Generates connection IDs with a server ID, in the plaintext format of QUIC-LB
/// (draft-ietf-quic-load-balancers): anyone on the network can see which server has a connection.
/// Five bytes of each are random. [`endpoint`](crate::endpoint) uses it for sockets that have a
/// server ID.
#[derive(Debug, Clone, Copy)]
pub struct ServerConnectionIds {
    server: ServerId,
    random: RandomConnectionIdGenerator,
}

impl ServerConnectionIds {
    /// Connection IDs with this server ID.
    pub fn new(server: ServerId) -> ServerConnectionIds {
        let random = RandomConnectionIdGenerator::new(ServerId::CONNECTION_ID_BYTES);
        ServerConnectionIds { server, random }
    }
}

impl ConnectionIdGenerator for ServerConnectionIds {
    fn generate_cid(&mut self) -> ConnectionId {
        let mut id = self.random.generate_cid();
        let prefix = self.server.prefix();
        id[..prefix.len()].copy_from_slice(&prefix);
        id
    }

    fn cid_len(&self) -> usize {
        ServerId::CONNECTION_ID_BYTES
    }

    fn cid_lifetime(&self) -> Option<Duration> {
        None
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn they_begin_with_the_server_id_and_differ() {
        let server = ServerId::new(1, 0xabcd).unwrap();
        let mut generator = ServerConnectionIds::new(server);
        let ids: BTreeSet<Vec<u8>> = (0..1000).map(|_| generator.generate_cid().to_vec()).collect();
        assert_eq!(ids.len(), 1000);
        for id in ids {
            assert_eq!(id.len(), generator.cid_len());
            assert_eq!(id[..3], [0b001_00111, 0xab, 0xcd]);
        }
    }
}
