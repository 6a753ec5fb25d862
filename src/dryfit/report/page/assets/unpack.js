// The page's data: base64 of gzip of a head (JSON, its length in 4 bytes before it) and columns of varints.
// Written by dryfit/report/page/columns.py.

async function unpack(text) {
  const stream = new Blob([fromBase64(text)]).stream().pipeThrough(new DecompressionStream('gzip'));
  const raw = new Uint8Array(await new Response(stream).arrayBuffer());
  const headBytes = new DataView(raw.buffer).getUint32(0, true);
  const head = JSON.parse(new TextDecoder().decode(raw.subarray(4, 4 + headBytes)));
  const body = raw.subarray(4 + headBytes);
  const column = (name) => readVarints(body, ...head.columns[name]);
  return { head, column };
}

function fromBase64(text) {
  if (Uint8Array.fromBase64) return Uint8Array.fromBase64(text);
  const binary = atob(text);
  const bytes = new Uint8Array(binary.length);
  for (let i = 0; i < bytes.length; i++) bytes[i] = binary.charCodeAt(i);
  return bytes;
}

// As floats: sizes and addresses go beyond 32 bits, and stay well under 2^53.
function readVarints(bytes, start, count) {
  const out = new Float64Array(count);
  let at = start;
  for (let i = 0; i < count; i++) {
    let byte = bytes[at++];
    let value = byte & 127;
    for (let scale = 128; byte > 127; scale *= 128) {
      byte = bytes[at++];
      value += (byte & 127) * scale;
    }
    out[i] = value;
  }
  return out;
}

function unzigzag(value) {
  return value % 2 ? -(value + 1) / 2 : value / 2;
}

// Differences back to numbers, in place.
function undelta(values) {
  let last = 0;
  for (let i = 0; i < values.length; i++) {
    last += unzigzag(values[i]);
    values[i] = last;
  }
  return values;
}
