// How long a lease lasts if its holder is never heard of again.

interface Lease {
  readonly granted_at: string;
  readonly expires_at: string;
}

/** The longest that a lease may last between two renewals is not told: by feel, a bar is full at this many seconds. */
const FULL_SEC = 60;

/** Returns the seconds that are left, and which part of a renewal that is, 0 to 1. */
export function leaseLeft(lease: Lease, now: number): { seconds: number; part: number } {
  const end = Date.parse(lease.expires_at);
  if (Number.isNaN(end)) return { seconds: 0, part: 0 };
  const seconds = Math.max(0, (end - now) / 1000);
  return { seconds, part: Math.min(1, seconds / FULL_SEC) };
}
