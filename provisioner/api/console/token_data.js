// @ts-check
// Makes a token as `provisioner token create` does: 256 random bits, of which only a digest leaves.

/** {token, sha256}: the token, and its digest in hex. */
export async function new_token() {
  const bytes = crypto.getRandomValues(new Uint8Array(32));
  const text = btoa(String.fromCharCode(...bytes)).replaceAll("+", "-").replaceAll("/", "_").replace(/=+$/, "");
  const token = `prv_${text}`;
  const digest = await crypto.subtle.digest("SHA-256", new TextEncoder().encode(token));
  return { token, sha256: Array.from(new Uint8Array(digest), (b) => b.toString(16).padStart(2, "0")).join("") };
}
