/** Actions that the page requests from the server: links, reports, and control of tasks. */

import { signal } from '@preact/signals'
import type { ControlResult, NewLink } from '../../protocol.ts'
import { countText } from '../../../views/readable.ts'
import { pageState } from './fragment.ts'
import { later } from './page-clock.ts'

/** The latest message about an action; it disappears after a while. */
export const notice = signal('')

const shownMs = 6000
let hideNotice: () => void = () => undefined

function showNotice(text: string): void {
  hideNotice()
  notice.value = text
  hideNotice = later(shownMs, () => (notice.value = ''))
}

async function post(path: string, body: object): Promise<unknown> {
  const response = await fetch(path, {
    method: 'POST',
    headers: { 'content-type': 'application/json' },
    body: JSON.stringify(body),
  })
  const answer = (await response.json()) as unknown
  if (response.ok) return answer
  throw new Error(
    (answer as { readonly error?: { readonly message?: string } }).error?.message ?? '',
  )
}

/** Copies a link for one other browser, which shows the same view. */
export async function copyLink(): Promise<void> {
  try {
    const { token } = (await post('link', {})) as NewLink
    const url = new URL(location.href)
    url.searchParams.set('t', token)
    await copyText(url.href)
    showNotice('Link copied. It works once.')
  } catch (error) {
    showNotice(`No link: ${messageOf(error)}`)
  }
}

/** Copies a text, or shows it if the page has no clipboard, for example without HTTPS. */
async function copyText(text: string): Promise<void> {
  const { clipboard } = navigator as { readonly clipboard?: Clipboard }
  if (clipboard === undefined) prompt('Copy this text:', text)
  else await clipboard.writeText(text)
}

export async function copyWithNotice(text: string, what: string): Promise<void> {
  try {
    await copyText(text)
    showNotice(`${what} copied.`)
  } catch (error) {
    showNotice(`Not copied: ${messageOf(error)}`)
  }
}

export function saveReport(): void {
  const link = document.createElement('a')
  const { record } = pageState.peek()
  link.href = record === null ? 'report' : `report?record=${encodeURIComponent(record)}`
  link.download = ''
  link.click()
}

/** Cancels or retries tasks, one request each. */
export async function control(action: 'cancel' | 'retry', uids: readonly string[]): Promise<void> {
  const did = action === 'cancel' ? 'Canceled' : 'Retried'
  try {
    let changed = 0
    for (const uid of uids) {
      const { result } = (await post(`control/${action}`, { uid })) as ControlResult
      if (result !== false) changed++
    }
    showNotice(
      `${did}: ${countText(changed, 'task')}${changed < uids.length ? ` of ${uids.length}` : ''}.`,
    )
  } catch (error) {
    showNotice(`Not ${did.toLowerCase()}: ${messageOf(error)}`)
  }
}

const messageOf = (error: unknown): string =>
  error instanceof Error ? error.message : String(error)
