// Numbers and times in words. Times are in the reader's own zone, with the date where it is not today.

export const FAMILIES = {
  "kernel-oom": "out of host memory",
  "stop-timeout": "stop took too long",
  "stop": "stopped as asked",
  "signal": "killed by a signal",
  "cuda": "GPU",
  "traceback": "Python exception",
  "native": "native crash",
  "hang": "hang",
  "start": "start failed",
  "host": "host went down",
  "unknown": "not known",
};

export const STRENGTHS = {
  confirmed: "A record that cannot be forged names this server and explains its end.",
  likely: "It fits what was recorded, but another explanation is open.",
};

export const ROLES = {
  initiating: "what it began with",
  cascade: "what followed from it",
  teardown: "cleaning up",
  context: "seen beside it",
};

export const PHASES = {
  "before-logging": "before its first line",
  "startup": "while starting",
  "warmup": "while warming up",
  "serving": "while serving",
  "shutdown": "while stopping",
};

const CLOCK = new Intl.DateTimeFormat(undefined, { hour: "2-digit", minute: "2-digit", second: "2-digit", hourCycle: "h23" });
const DAY = new Intl.DateTimeFormat(undefined, { day: "numeric", month: "short" });
export const ZONE = Intl.DateTimeFormat().resolvedOptions().timeZone;

export function clock(moment) {
  return CLOCK.format(new Date(moment));
}

export function clockExactly(moment) {
  return `${clock(moment)}.${String(moment).slice(20, 23).padEnd(3, "0")}`;
}

export function dayAndClock(moment) {
  const date = new Date(moment);
  const today = new Date().toDateString() === date.toDateString();
  return today ? CLOCK.format(date) : `${DAY.format(date)}, ${CLOCK.format(date)}`;
}

export function day(moment) {
  return DAY.format(new Date(moment));
}

export function utc(moment) {
  return `${new Date(moment).toISOString().slice(0, 19).replace("T", " ")} UTC`;
}

export function duration(seconds) {
  if (seconds < 1) return `${Math.round(seconds * 1000)} ms`;
  if (seconds < 90) return `${seconds < 10 ? seconds.toFixed(1) : Math.round(seconds)} s`;
  const minutes = Math.round(seconds / 60);
  if (minutes < 90) return `${minutes} min`;
  const hours = Math.floor(minutes / 60);
  if (hours < 48) return minutes % 60 ? `${hours} h ${minutes % 60} min` : `${hours} h`;
  return `${Math.round(hours / 24)} days`;
}

export function ago(moment) {
  const seconds = (Date.now() - new Date(moment)) / 1000;
  return seconds < 10 ? "just now" : `${duration(seconds)} ago`;
}

export function bytes(size) {
  let rest = size;
  for (const unit of ["B", "KiB", "MiB", "GiB"]) {
    if (Math.abs(rest) < 1024) return `${unit === "B" ? rest : rest.toFixed(1)} ${unit}`;
    rest /= 1024;
  }
  return `${rest.toFixed(1)} TiB`;
}

export function ordinal(number) {
  const teens = number % 100 >= 10 && number % 100 <= 20;
  return `${number}${teens ? "th" : ({ 1: "st", 2: "nd", 3: "rd" }[number % 10] ?? "th")}`;
}

export function count(number, one, many = `${one}s`) {
  return `${number} ${number === 1 ? one : many}`;
}
