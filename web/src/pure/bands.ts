// Load over the last hours: bands of equal state, and columns for the charts.

export interface StateSample {
  /** Milliseconds since 1970. */
  readonly at: number;
  readonly state: string;
}

export interface StateBand {
  readonly state: string;
  readonly from: number;
  readonly to: number;
}

/** Returns the distance between most samples: the median, at least a millisecond. */
export function usualDistance(times: readonly number[]): number {
  const distances = times.slice(1).map((at, i) => at - (times[i] ?? at));
  distances.sort((a, b) => a - b);
  return Math.max(1, distances[Math.floor(distances.length / 2)] ?? 1000);
}

/**
 * Joins samples of equal state, oldest first, to bands. Where nothing was measured for much longer than usual, there is a gap:
 * a machine that was switched off was in no state.
 */
export function stateBands(samples: readonly StateSample[], until: number): StateBand[] {
  const usual = usualDistance(samples.map((sample) => sample.at));
  const bands: { state: string; from: number; to: number }[] = [];
  samples.forEach((sample, i) => {
    const next = samples[i + 1]?.at ?? Math.max(until, sample.at);
    const to = Math.min(next, sample.at + usual * 3);
    const last = bands[bands.length - 1];
    if (last && last.state === sample.state && last.to >= sample.at) last.to = Math.max(last.to, to);
    else if (to > sample.at) bands.push({ state: sample.state, from: sample.at, to });
  });
  return bands;
}

/** Returns how much of the bands' time each state has, 0 to 1. */
export function stateShares(bands: readonly StateBand[]): Map<string, number> {
  const shares = new Map<string, number>();
  let whole = 0;
  for (const band of bands) {
    const time = band.to - band.from;
    whole += time;
    shares.set(band.state, (shares.get(band.state) ?? 0) + time);
  }
  for (const [state, time] of shares) shares.set(state, whole ? time / whole : 0);
  return shares;
}

/**
 * Turns samples into columns for a chart: seconds, then a column for each field. A gap in time becomes a row of nulls, so that
 * no line is drawn over hours in which nothing was measured.
 */
export function chartColumns<S>(
  samples: readonly S[],
  timeOf: (sample: S) => number,
  fields: readonly ((sample: S) => number | null | undefined)[],
): (number | null)[][] {
  const usual = usualDistance(samples.map(timeOf));
  const times: number[] = [];
  const columns: (number | null)[][] = fields.map(() => []);
  let before: number | undefined;
  for (const sample of samples) {
    const at = timeOf(sample);
    if (before !== undefined && at - before > usual * 5) {
      times.push((before + usual) / 1000);
      for (const column of columns) column.push(null);
    }
    before = at;
    times.push(at / 1000);
    fields.forEach((field, i) => {
      const value = field(sample);
      columns[i]?.push(value === undefined || value === null || !Number.isFinite(value) ? null : value);
    });
  }
  return [times, ...columns];
}
