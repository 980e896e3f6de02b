//! Encoding of the metrics of one name.

use prometheus_client::encoding::{DescriptorEncoder, EncodeLabelSet, EncodeMetric};
use prometheus_client::metrics::TypedMetric;

pub(super) type Encoded = Result<(), std::fmt::Error>;

/// Encodes the metrics of one name, which differ in their labels.
pub(super) fn family<L: EncodeLabelSet, M: EncodeMetric + TypedMetric>(
    encoder: &mut DescriptorEncoder<'_>,
    name: &str,
    help: &str,
    metrics: impl IntoIterator<Item = (L, M)>,
) -> Encoded {
    let mut family = encoder.encode_descriptor(name, help, None, M::TYPE)?;
    let mut metrics = metrics.into_iter();
    metrics.try_for_each(|(labels, metric)| metric.encode(family.encode_family(&labels)?))
}

/// Encodes the only metric of its name.
pub(super) fn single<M: EncodeMetric + TypedMetric>(
    encoder: &mut DescriptorEncoder<'_>,
    name: &str,
    help: &str,
    metric: &M,
) -> Encoded {
    metric.encode(encoder.encode_descriptor(name, help, None, M::TYPE)?)
}
