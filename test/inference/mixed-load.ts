/** Requests of every surface to a server of another process, and whether its memory grows. */

import { readFileSync } from 'node:fs'
import { expect } from 'vitest'
import { type SurfaceClient, surfaceClients } from './server/surfaces/surface-clients.ts'

/** An answer that a surface gave with a reason instead of a text. */
export class RefusedError extends Error {}

/** Sends a text to a model. Rejects with `RefusedError` if the reply has a reason. */
export type AskModel = (endpoint: string, model: string, text: string) => Promise<void>

/** Each surface, with whole and with streamed answers. */
export const surfaceAsks: readonly AskModel[] = Object.values(surfaceClients).flatMap((surface) =>
  [{ stream: false }, surface.streamFields].map(
    (fields): AskModel =>
      (endpoint, model, text) =>
        askSurface(surface, endpoint, { text, fields: { ...fields, model } }),
  ),
)

async function askSurface(
  surface: SurfaceClient,
  endpoint: string,
  { text, fields }: { readonly text: string; readonly fields: AskFields },
): Promise<void> {
  const body = { ...surface.toBody({ turns: [{ role: 'user', text }], maxTokens: 8 }), ...fields }
  const response = await fetch(endpoint + surface.path, {
    method: 'POST',
    headers: { 'content-type': 'application/json' },
    body: JSON.stringify(body),
  })
  const reply = await response.text()
  const parts = toParts(reply)
  const refused = parts.find(({ type, error }) => type === 'error' || (error ?? null) !== null)
  if (refused !== undefined) {
    const reason = surface.readError(refused)
    expect(reason).toMatch(/\w+ \w+/)
    throw new RefusedError(String(reason))
  }
  expect(response.status).toBe(200)
  expect(reply).toContain(`"model":"${fields.model}"`)
  const { tokens } =
    fields.stream === false ? surface.readWhole(parts[0]) : surface.readStream(parts)
  expect(tokens[0]).toBeGreaterThan(0)
  expect(tokens[1]).toBeLessThanOrEqual(8)
}

interface AskFields {
  readonly model: string
  readonly stream?: boolean
}

/** The objects of a reply, whether it is whole, lines of JSON or events. */
const toParts = (text: string): ReturnType<typeof JSON.parse>[] =>
  text
    .split('\n')
    .map((line) => line.replace(/^data: /, ''))
    .filter((line) => line.startsWith('{'))
    .map((line) => JSON.parse(line))

/** Runs `work`, and returns the bytes that the processes had in memory, once a second. */
export async function sampleMemory(
  listPids: () => readonly number[],
  work: () => Promise<unknown>,
): Promise<readonly MemorySample[]> {
  const samples: MemorySample[] = []
  const timer = setInterval(() => {
    const bytes = listPids().reduce((sum, pid) => sum + readResidentBytes(pid), 0)
    samples.push({ seconds: performance.now() / 1000, bytes })
  }, 1000)
  await work().finally(() => clearInterval(timer))
  return samples
}

const readResidentBytes = (pid: number): number =>
  Number(readFileSync(`/proc/${pid}/statm`, 'utf8').split(' ')[1]) * 4096

export function expectNoGrowth(
  samples: readonly MemorySample[],
  minutes: number,
  what: string,
): void {
  expect(samples.length).toBeGreaterThan(minutes * 30)
  const { megabytes, perMinute } = memoryTrend(samples)
  const numbers = `${megabytes.toFixed(0)} MB, ${perMinute.toFixed(2)} MB more in a minute`
  process.stdout.write(`${what}, ${samples.length} samples: ${numbers}\n`)
  expect((perMinute * minutes) / megabytes).toBeLessThan(0.05)
}

export interface MemorySample {
  readonly seconds: number
  readonly bytes: number
}

/** The mean, and the slope by least squares, after the first third, which warms up. */
function memoryTrend(all: readonly MemorySample[]): { megabytes: number; perMinute: number } {
  const samples = all.slice(Math.floor(all.length / 3))
  const mean = (key: keyof MemorySample): number =>
    samples.reduce((sum, sample) => sum + sample[key], 0) / samples.length
  const [seconds, bytes] = [mean('seconds'), mean('bytes')]
  let [shared, spread] = [0, 0]
  for (const sample of samples) {
    shared += (sample.seconds - seconds) * (sample.bytes - bytes)
    spread += (sample.seconds - seconds) ** 2
  }
  return { megabytes: bytes / 1e6, perMinute: ((shared / spread) * 60) / 1e6 }
}
