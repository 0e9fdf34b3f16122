// A package of files for the engine: a zip in which nothing is compressed, as `millstream deploy` packs a flow.

const TABLE = Array.from({ length: 256 }, (_, at) => {
  let value = at;
  for (let bit = 0; bit < 8; bit++) value = value & 1 ? (value >>> 1) ^ 0xedb88320 : value >>> 1;
  return value >>> 0;
});

function crc32(bytes: Uint8Array): number {
  let value = 0xffffffff;
  for (const one of bytes) value = (value >>> 8) ^ TABLE[(value ^ one) & 255]!;
  return (value ^ 0xffffffff) >>> 0;
}

/** Numbers in little endian: pairs of a value and its bytes. */
function packed(...fields: [number, 2 | 4][]): number[] {
  return fields.flatMap(([value, size]) => Array.from({ length: size }, (_, at) => (value >>> (8 * at)) & 255));
}

const UTF8 = 0x800;
const FIRST_DAY = 0x21; // of 1980: the same files make the same bytes

/** The zip of files by name. */
export function zip(files: ReadonlyMap<string, Uint8Array>): Uint8Array<ArrayBuffer> {
  const parts: Uint8Array[] = [];
  const entries: Uint8Array[] = [];
  let offset = 0;
  for (const [file, bytes] of files) {
    const name = new TextEncoder().encode(file);
    const about: [number, 2 | 4][] = [
      [20, 2], [UTF8, 2], [0, 2], [0, 2], [FIRST_DAY, 2],
      [crc32(bytes), 4], [bytes.length, 4], [bytes.length, 4], [name.length, 2], [0, 2],
    ];
    const local = [...packed([0x04034b50, 4], ...about), ...name];
    entries.push(
      Uint8Array.from([
        ...packed([0x02014b50, 4], [20, 2], ...about, [0, 2], [0, 2], [0, 2], [0, 4], [offset, 4]),
        ...name,
      ]),
    );
    parts.push(Uint8Array.from(local), bytes);
    offset += local.length + bytes.length;
  }
  const size = entries.reduce((sum, one) => sum + one.length, 0);
  const count = entries.length;
  const end = packed([0x06054b50, 4], [0, 2], [0, 2], [count, 2], [count, 2], [size, 4], [offset, 4], [0, 2]);
  const all = [...parts, ...entries, Uint8Array.from(end)];
  const whole = new Uint8Array(offset + size + end.length);
  let at = 0;
  for (const one of all) {
    whole.set(one, at);
    at += one.length;
  }
  return whole;
}

export function base64(bytes: Uint8Array): string {
  let text = "";
  for (let at = 0; at < bytes.length; at += 0x8000) text += String.fromCharCode(...bytes.subarray(at, at + 0x8000));
  return btoa(text);
}
