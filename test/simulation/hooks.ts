/**
 * Loads the sources for a simulation: with seeded random numbers and, if `TUTTI_MISTAKE` names
 * one, with a deliberate mistake. Must be imported before any source file.
 */

import { registerHooks } from 'node:module'
import { mistakes } from './mistakes.ts'

const seededCrypto = new URL('seeded-crypto.ts', import.meta.url).href
const wanted = process.env['TUTTI_MISTAKE']
const mistake = mistakes.find(({ name }) => name === wanted)
if (wanted !== undefined && mistake === undefined) throw new Error(`no mistake is named ${wanted}`)

registerHooks({
  resolve(specifier, context, next) {
    const isSource = context.parentURL?.includes('/src/') === true
    if (specifier !== 'node:crypto' || !isSource) return next(specifier, context)
    return { url: seededCrypto, shortCircuit: true }
  },
  load(url, context, next) {
    const loaded = next(url, context)
    if (mistake === undefined || !url.endsWith(`/src/${mistake.file}`)) return loaded
    const { source } = loaded
    const text = typeof source === 'string' ? source : Buffer.from(source as Uint8Array).toString()
    if (text.split(mistake.text).length !== 2) {
      throw new Error(`${mistake.file} does not have this text once: ${mistake.text}`)
    }
    return { ...loaded, source: text.replace(mistake.text, () => mistake.replacement) }
  },
})
