// Numbers for people.

const grouped = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });

/** Returns a count with its thousands apart, by a narrow space: "100 000". */
export function count(value: number): string {
  return grouped.format(value).replaceAll(",", "\u202f");
}

/** Returns a count in at most four characters, for badges: "12k", "3.4M". */
export function shortCount(value: number): string {
  if (value < 10_000) return String(value);
  for (const [letter, size] of [["k", 1e3], ["M", 1e6], ["G", 1e9]] as const) {
    const scaled = value / size;
    if (scaled < 999.5 || letter === "G") return `${scaled < 9.95 ? scaled.toFixed(1).replace(/\.0$/, "") : Math.round(scaled)}${letter}`;
  }
  return String(value);
}

/** Returns an amount of bytes: "1.4 GiB". */
export function bytes(value: number): string {
  const names = ["B", "KiB", "MiB", "GiB", "TiB"];
  let at = 0;
  let scaled = value;
  while (scaled >= 1023.5 && at < names.length - 1) {
    scaled /= 1024;
    at++;
  }
  return `${at === 0 || scaled >= 99.5 ? Math.round(scaled) : scaled.toFixed(1).replace(/\.0$/, "")} ${names[at]}`;
}

/** Returns a share as a percentage: 0.123 is "12 %". */
export function percent(share: number, digits = 0): string {
  return `${(share * 100).toFixed(digits)} %`;
}

/** Returns a measured value with as many digits as it deserves: 3 significant ones. */
export function measure(value: number): string {
  if (!Number.isFinite(value)) return String(value);
  if (Number.isInteger(value)) return count(value);
  return String(Number(value.toPrecision(3)));
}

/** Returns the noun with its count: "1 job", "2 jobs". */
export function plural(value: number, one: string, many = `${one}s`): string {
  return `${count(value)} ${value === 1 ? one : many}`;
}
