// A call in forms that can be copied: a curl command, JSON, a link.

/** A text quoted as one word for a POSIX shell, whatever characters it has. */
export const quoted = (text) => `'${text.replaceAll("'", "'\\''")}'`;

/** The call as a curl command. A shell comment says which parts of the request are not kept. */
export function curl(call, about, listen) {
  const grpc = call.grpc_status !== undefined;
  const words = ["curl", "-i", "-g"]; // -g: brackets in a URL are not patterns
  if (call.method === "HEAD") words.push("-I");
  else if (call.method !== "GET") words.push("-X", quoted(call.method));
  if (grpc) words.push("--http2-prior-knowledge", "-H", quoted("Content-Type: application/grpc"));
  const own = listen.includes(call.host); // the app sent the call to redrive's own address
  const secure = (call.endpoint ?? "").endsWith(":443") && !own && !/:\d+$/.test(call.host);
  const reverse = own || (about?.prefix && (call.path === about.prefix || call.path.startsWith(`${about.prefix}/`)));
  if (!reverse && !secure && listen[0]) words.push("-x", quoted(`http://${listen[0]}`));
  words.push(quoted(`${secure && !reverse ? "https" : "http"}://${reverse && !own ? (listen[0] ?? call.host) : call.host}${call.path}`));
  const kept = ["request headers and the body are not recorded, add what the call needs"];
  if (call.path.includes("***") || call.host.includes("***")) kept.unshift("what is masked stands as three asterisks, put the value in its place");
  if (grpc) kept.push("curl cannot encode the message of a gRPC call");
  return `# ${kept.join(", ")}\n${words.join(" ")}\n`;
}

/** Put a text on the clipboard, and return whether the browser allowed it. */
export async function copied(text) {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    return false; // not a secure context, or not permitted
  }
}
