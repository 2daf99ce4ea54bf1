/** The chat page at `/`: one file with its script and its style, which the build makes. */

import { hash } from 'node:crypto'
import { fileURLToPath } from 'node:url'
import { tryRead } from '../../foundation/errors.ts'
import { readRegularFileSync } from '../../foundation/regular-file.ts'
import { HttpError } from '../../runtime/http/http-error.ts'
import type { DocumentedRoute } from './openapi.ts'

/** The path of the built page, which is in the folder of this file. */
export const chatPageFile = fileURLToPath(new URL('chat-page.html', import.meta.url))

/** The route of the page. The page is public; its requests need the key. */
export function createPageRoute(file: string): DocumentedRoute {
  let page: ChatPage | undefined
  return {
    method: 'GET',
    path: '/',
    document: { summary: 'A page to chat with the model.', isText: true },
    isPublic: true,
    answer(exchange) {
      page ??= readPage(file)
      exchange.replaceHeaders(page.headers)
      exchange.sendText(200, page.text, ['content-type', 'text/html; charset=utf-8'])
    },
  }
}

interface ChatPage {
  readonly text: string
  /** The headers of the response besides its type. */
  readonly headers: readonly string[]
}

function readPage(file: string): ChatPage {
  const text = tryRead(() => readRegularFileSync(file).bytes.toString('utf8'))
  if (text === undefined) {
    const message = 'The page is missing: a bundler has moved this program away from its files.'
    throw new HttpError(404, message, { code: 'unknown_url' })
  }
  return { text, headers: toPageHeaders(text) }
}

/** Allows only the page's own script and style, and only requests to this server. */
function toPageHeaders(text: string): readonly string[] {
  const policy = [
    "default-src 'none'",
    `script-src ${hashOf(text, 'script')}`,
    `style-src ${hashOf(text, 'style')}`,
    "connect-src 'self'",
    'img-src data:',
    "base-uri 'none'",
    "form-action 'none'",
    "frame-ancestors 'none'",
  ]
  return [
    'x-content-type-options',
    'nosniff',
    'referrer-policy',
    'no-referrer',
    'cache-control',
    'no-store',
    'content-security-policy',
    policy.join('; '),
  ]
}

function hashOf(text: string, element: 'script' | 'style'): string {
  const content = new RegExp(`<${element}[^>]*>([^]*?)</${element}>`).exec(text)?.[1] ?? ''
  return `'sha256-${hash('sha256', content, 'base64')}'`
}
