// Numbers for people: aligned, short, never without a unit.

const count = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });

/** 12 345 as "12,345", larger ones as "1.23 M". */
export function rows(value: number): string {
  if (Math.abs(value) < 1e6) return count.format(value);
  const [short, unit] = Math.abs(value) < 1e9 ? [value / 1e6, "M"] : [value / 1e9, "G"];
  return `${short.toFixed(Math.abs(short) < 10 ? 2 : 1)} ${unit}`;
}

export function perSecond(value: number): string {
  if (value === 0) return "0 /s";
  return `${value < 10 ? value.toFixed(1) : rows(value)} /s`;
}

export function bytes(value: number): string {
  const units = ["B", "kB", "MB", "GB", "TB"];
  let at = 0;
  while (value >= 1000 && at < units.length - 1) {
    value /= 1000;
    at++;
  }
  return `${value < 10 && at ? value.toFixed(1) : Math.round(value)} ${units[at]}`;
}

/** A duration in seconds: "85 ms", "3.2 s", "4 min 10 s", "3 h 5 min", "2 d 4 h". */
export function duration(seconds: number): string {
  if (seconds < 0) return `-${duration(-seconds)}`;
  if (seconds < 0.0005) return "0 s";
  if (seconds < 1) return `${Math.round(seconds * 1000)} ms`;
  if (seconds < 10) return `${seconds.toFixed(1)} s`;
  if (seconds < 60) return `${Math.round(seconds)} s`;
  const steps: [number, string, number, string][] = [
    [60, "min", 1, "s"],
    [3600, "h", 60, "min"],
    [86400, "d", 3600, "h"],
  ];
  const [unit, name, small, less] = steps.findLast(([size]) => seconds >= size)!;
  const whole = Math.floor(seconds / unit);
  const rest = Math.floor((seconds - whole * unit) / small);
  return rest && whole < 100 ? `${whole} ${name} ${rest} ${less}` : `${count.format(whole)} ${name}`;
}

export function clock(at: number | string): string {
  const moment = typeof at === "string" ? new Date(at) : new Date(at * 1000);
  return moment.toLocaleString("sv-SE", { hour12: false });
}

export const seconds = (iso: string) => Date.parse(iso) / 1000;
