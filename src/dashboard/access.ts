/**
 * Decides who may see a dashboard and control its run. A link works once: the browser that opens it
 * gets a cookie.
 */

import { hash, randomBytes } from 'node:crypto'
import type { IncomingMessage } from 'node:http'

export interface Viewer {
  mayControl: boolean
  /** The bytes of responses that the browser has not read yet. */
  pendingBytes: number
  /** The number of requests that wait for an answer. */
  waiting: number
}

/** The maximum number of links, and of viewers. If there are more, one is removed. */
const maxLinks = 1000
const maxViewers = 1000

export class Access {
  /**
   * The name is random, because browsers send a cookie to all servers of its host, whatever their
   * port.
   */
  readonly #cookieName = `tutti-${randomBytes(8).toString('hex')}`
  /** Both maps have digests of secrets as keys, so that the time of a look-up reveals nothing. */
  readonly #links = new Map<string, { readonly mayControl: boolean }>()
  readonly #viewers = new Map<string, Viewer>()

  /** Returns the token of a new link. */
  createLink(mayControl: boolean): string {
    const token = createSecret()
    keep(this.#links, digestOf(token), { mayControl }, maxLinks)
    return token
  }

  /** Returns the viewer that the request's cookie names; `null` if there is none. */
  viewerOf({ headers }: IncomingMessage): Viewer | null {
    for (const part of (headers.cookie ?? '').split(';')) {
      const [name = '', value = ''] = part.trim().split('=', 2)
      if (name !== this.#cookieName) continue
      const viewer = this.#viewers.get(digestOf(value))
      if (viewer !== undefined) return viewer
    }
    return null
  }

  /**
   * Uses up a link. Returns the header that sets the cookie, or an empty list if the browser has
   * the cookie already; `null` if the link is unknown or was used before.
   */
  openLink(token: string, viewer: Viewer | null): readonly string[] | null {
    const link = this.#links.get(digestOf(token))
    if (link === undefined) return null
    this.#links.delete(digestOf(token))
    if (viewer !== null) {
      viewer.mayControl ||= link.mayControl
      return []
    }
    const secret = createSecret()
    const added = { mayControl: link.mayControl, pendingBytes: 0, waiting: 0 }
    keep(this.#viewers, digestOf(secret), added, maxViewers)
    // Sets no path, so that the cookie is limited to the path under which a proxy shows the page.
    return ['set-cookie', `${this.#cookieName}=${secret}; HttpOnly; SameSite=Strict`]
  }
}

const createSecret = (): string => randomBytes(24).toString('base64url')
const digestOf = (secret: string): string => hash('sha256', secret, 'base64')

interface Rights {
  readonly mayControl: boolean
}

/** Removes the oldest one that may only look, because every viewer can make links for looking. */
function keep<T extends Rights>(map: Map<string, T>, key: string, value: T, max: number): void {
  if (map.size >= max) {
    const keys = [...map.keys()]
    const oldest = keys.find((one) => map.get(one)?.mayControl === false) ?? keys[0]
    if (oldest !== undefined) map.delete(oldest)
  }
  map.set(key, value)
}
