"""What the tier counts."""

from dataclasses import dataclass, field

from headrace.telemetry.metrics import Histogram, counter, gauge, histogram


@dataclass(slots=True)
class TierMetrics:
    tier_uploaded_objects_total: int = counter("Objects uploaded and committed.")
    tier_uploaded_bytes_total: int = counter("Bytes of record batches uploaded and committed.")
    tier_upload_failures_total: int = counter("Uploads that failed and went back to the WAL.")
    tier_uploads_under_way: int = gauge("Objects being uploaded now.")
    tier_commit_ms: Histogram = field(
        default_factory=Histogram, metadata=histogram("From the start of an upload to its commit, in milliseconds.")
    )
    tier_spill_bytes: int = gauge("Bytes in spill files: object storage would not have them, and the ring had no room.")
    tier_spilled_bytes_total: int = counter("Bytes copied from the ring into spill files.")
    tier_manifests_total: int = counter("Commit manifests written.")
    tier_manifests_pending: int = gauge("Commits whose manifest is not in the bucket yet.")
    tier_read_bytes_total: int = counter("Bytes of record batches served from the tier.")
    tier_fetched_bytes_total: int = counter("Bytes of record batches downloaded to serve reads.")
    tier_cache_hits_total: int = counter("Block reads answered by the read cache.")
    tier_cache_misses_total: int = counter("Block reads that needed a download.")
    tier_cache_bytes: int = gauge("Bytes held in the read cache.")
    tier_disk_cache_hits_total: int = counter("Block reads answered by the disk cache.")
    tier_disk_cache_bytes: int = gauge("Bytes of objects in a bucket that are kept on the local disk.")
    tier_read_pace_bytes: int = gauge("Bytes per second that downloads for reads are held to; 0 while they are not.")
    tier_corrupt_runs_total: int = counter("Runs whose bytes did not match their CRC. Someone should look.")
    tier_damaged_ranges: int = gauge("Ranges of offsets that were found unreadable and still are. Someone should look.")
    tier_retained_segments_total: int = counter("Segments dropped by retention.")
    tier_retained_bytes_total: int = counter("Bytes of segments dropped by retention.")
    tier_merged_segments_total: int = counter("Segments merged into larger ones.")
    tier_rewritten_bytes_total: int = counter("Bytes of live batches copied by merging and by freeing dead bytes.")
    tier_freed_bytes_total: int = counter("Dead bytes of objects that were written anew without them.")
    tier_compacted_records_total: int = counter("Records dropped because a newer one has their key.")
    tier_deleted_objects_total: int = counter("Objects deleted.")
