/** Load artifacts and save them as files. */

import { api, request, sessionPath } from "../base/api.js";
import { download } from "../base/dialogs.js";
import { withErrorToast } from "../base/dom.js";

/**
 * @typedef {{name: string, version: number, belongs_to: string, mime_type: string | null, bytes: number, uri: string | null,
 *   metadata: Record<string, unknown>, created_at: string}} Artifact
 */

/** The address of the artifacts of a conversation, or of the user's own before it is stored. @param {string | null} session */
export function address(session, rest = "") {
  return session === null ? `/v1/artifacts${rest}` : sessionPath(session, `/artifacts${rest}`);
}

/** Return every version of an artifact, the newest first. @param {string | null} session @param {string} name @returns {Promise<Artifact[]>} */
export async function loadVersions(session, name) {
  const { artifacts } = await api(address(session, `?name=${encodeURIComponent(name)}`));
  return artifacts.reverse();
}

/** Whether the content is stored here, and does not only name another place. @param {Artifact} artifact */
export function isHere({ uri }) {
  return uri === null || uri.startsWith("artifact://");
}

/** Load a version of an artifact, or its first bytes. @param {string | null} session @param {Artifact} artifact @param {number} [limit] @returns {Promise<Blob>} */
export async function loadContent(session, { name, version, bytes }, limit = Infinity) {
  const response = await request(address(session, `/${encodeURIComponent(name)}/${version}`), { headers: bytes > limit ? { Range: `bytes=0-${limit - 1}` } : {} });
  return response.blob();
}

/** @param {string | null} session @param {Artifact} artifact */
export async function save(session, artifact) {
  await withErrorToast(async () => {
    const name = artifact.name.replace(/^user:/, "").split("/").pop() || "artifact";
    download(await loadContent(session, artifact), name);
  });
}
