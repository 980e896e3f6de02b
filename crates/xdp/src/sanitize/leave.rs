//! The end of a run: checks of the return value, and of the packet that leaves.

use super::finding::Kind;
use super::headers::{self, Wrong};
use super::shadow::{ByteShadow, Place};
use super::{Redirect, Sanitizer};
use crate::run::Run;
use crate::verdict::Action;

impl Sanitizer {
    /// The program returns from its first function.
    pub(super) fn end(&mut self, run: &Run<'_>, returned: u32) {
        if !self.judges {
            return;
        }
        if self.bits[0] & 0xffff_ffff != 0 {
            let message = "the verdict that is returned depends on bytes that were never set";
            self.of_register(Kind::Return, 0, 0, message.to_owned());
        }
        let action = Action::from_returned(returned);
        self.redirected(action);
        self.habits.ends(action, self.place);
        if matches!(action, Action::Pass | Action::Tx | Action::Redirect) {
            self.leaves(run, action);
            self.headers(run, action);
        }
    }

    /// Notes which headers of the packet that arrives are right.
    pub(super) fn arrives(&mut self, run: &Run<'_>) {
        self.right_headers.clear();
        let is_whole = run.frame.offload().is_none() && run.frame.frags().next().is_none();
        if self.judges && is_whole {
            let start = run.frame.data_addr();
            let look = run.frame.with_linear(headers::look);
            self.right_headers.extend(look.right.iter().map(|&at| start + at as u64));
        }
    }

    /// Headers that were right when the packet arrived are right when it leaves, also where room
    /// was made in front and they moved there, and so are those in front of where it began.
    fn headers(&mut self, run: &Run<'_>, action: Action) {
        let to_socket = self.redirect.is_some_and(|redirect| redirect.to_socket);
        let is_judged = !self.right_headers.is_empty() && self.packet_writer != Place::default();
        if !is_judged || run.frame.offload().is_some() || action == Action::Redirect && to_socket {
            return;
        }
        let Some((wrong, at)) = run.frame.with_linear(headers::look).wrong else { return };
        let (start, at) = (run.frame.data_addr(), run.frame.data_addr() + at as u64);
        let was_at = at + self.arrived_at.saturating_sub(start);
        let was_right = [at, was_at].iter().any(|at| self.right_headers.contains(at));
        if at >= self.arrived_at && !was_right {
            return;
        }
        let leaves_at = std::mem::replace(&mut self.place, self.packet_writer);
        let (kind, message, advice) = match wrong {
            Wrong::Checksum(of) => {
                let message = format!(
                    "the packet that leaves with {action} has a wrong {of} \
                                       checksum; it arrived with a right one"
                );
                let advice = "update the checksum after each change of bytes that it covers (TCP, \
                              UDP and ICMPv6 include the IP addresses): bpf_csum_diff computes \
                              the difference";
                (Kind::Checksum, message, advice)
            }
            Wrong::Length(of) => {
                let message = format!(
                    "the packet that leaves with {action} has a wrong length in its {of} header; \
                     it arrived with a right one"
                );
                let advice = "bpf_xdp_adjust_head and bpf_xdp_adjust_tail leave headers as they \
                              are: set tot_len, payload_len or len, and the checksums";
                (Kind::Length, message, advice)
            }
            Wrong::Version(of) => {
                let message = format!(
                    "the packet that leaves with {action} has no {of} header, although the header \
                     in front of it announces one"
                );
                let advice = "set the number that fits: IPPROTO_IPIP and ETH_P_IP announce an \
                              IPv4 header, IPPROTO_IPV6 and ETH_P_IPV6 an IPv6 header";
                (Kind::Length, message, advice)
            }
        };
        if !self.is_known(kind, 0) {
            let related = self.told("this line changed the packet last; it leaves in", leaves_at);
            self.found(kind, message, related.into_iter().collect(), advice.to_owned());
        }
    }

    fn redirected(&mut self, action: Action) {
        let (message, related, advice) = match (action, self.redirect) {
            (Action::Redirect, None) => {
                let message = "XDP_REDIRECT is returned, but no call of bpf_redirect or \
                               bpf_redirect_map set a target: the packet is dropped";
                (message, None, "return the result of bpf_redirect or bpf_redirect_map")
            }
            (Action::Redirect, Some(Redirect { place, succeeded: false, .. })) => {
                let message = "XDP_REDIRECT is returned although the call that sets the target \
                               failed: the packet is dropped";
                let advice = "return the result of that call, or check it; the lower two bits of \
                              the flags of bpf_redirect_map are the verdict that it returns for a \
                              key without an entry (XDP_PASS, for example)";
                (message, Some(place), advice)
            }
            (_, Some(Redirect { place, succeeded: true, to_nothing, .. }))
                if action != Action::Redirect || to_nothing =>
            {
                return self.of_no_use(action, place);
            }
            _ => return,
        };
        if !self.is_known(Kind::Redirect, 0) {
            let related = related.and_then(|place| self.told("the call is in", place));
            self.found(
                Kind::Redirect,
                message.to_owned(),
                related.into_iter().collect(),
                advice.to_owned(),
            );
        }
    }

    /// Reports that the target that a call set is not used: the packet does not go there.
    fn of_no_use(&mut self, action: Action, place: Place) {
        let (kind, message, advice) = match action {
            Action::Redirect => (
                Kind::RedirectToNothing,
                "the packet is redirected to ifindex 0, which no interface has: it is dropped"
                    .to_owned(),
                "set the interface: a constant or a map value that a loader should set is still 0",
            ),
            action => (
                Kind::UnusedRedirect,
                format!(
                    "this call sets a redirect target, but {action} is returned: the packet is \
                     not redirected"
                ),
                "return the result of this call",
            ),
        };
        let leaves_at = std::mem::replace(&mut self.place, place);
        if !self.is_known(kind, 0) {
            let related = self.told("it leaves in", leaves_at);
            self.found(kind, message, related.into_iter().collect(), advice.to_owned());
        }
        self.place = leaves_at;
    }

    /// Checks for unset bytes added by `bpf_xdp_adjust_head` and `bpf_xdp_adjust_meta`.
    fn leaves(&mut self, run: &Run<'_>, action: Action) {
        if self.shadow.is_stack_only() {
            return;
        }
        let (meta, data) = (run.frame.data_meta_addr(), run.frame.data_addr());
        let end = run.frame.data_end_addr();
        self.unset_packet("the packet", data, end, action);
        // Senders don't read metadata.
        if meta < data && action != Action::Tx {
            self.unset_packet("the metadata in front of the packet", meta, data, action);
        }
    }

    fn unset_packet(&mut self, what: &str, start: u64, end: u64, action: Action) {
        if self.shadow.is_defined(start, end - start) {
            return;
        }
        let bytes: Vec<ByteShadow> = (start..end).map(|addr| self.shadow.byte(addr)).collect();
        let Some(first) = bytes.iter().find(|byte| byte.bits != 0) else { return };
        let by: Place = first.by;
        self.place = if by.get().is_some() { by } else { self.place };
        if !self.is_known(Kind::Packet, u8::from(what.starts_with("the metadata"))) {
            let subject = format!("{what} that leaves with {action}");
            self.unset(Kind::Packet, &subject, None, &bytes, start, None);
        }
    }
}
