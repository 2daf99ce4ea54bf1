import { mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { expect, it } from 'vitest'
import { type RunningCommand, startCommand } from '../cli/run-command.ts'
import { eventually } from '../eventually.ts'
import { byRun, chooseSeed, createRandom, hangMs } from '../long-run.ts'
import { isRunning, modelProcesses } from './engines/llama/model-processes.ts'
import { storyModel } from './engines/llama/open-engine.ts'
import { expectNoGrowth, RefusedError, sampleMemory, surfaceAsks } from './mixed-load.ts'

const clients = byRun(16, 64)
const minutes = byRun(0, 10)
const kills = byRun(2, 40)

/** A server of two models, of which only one fits into the memory. */
async function serve(folder: string): Promise<RunningCommand> {
  const config = join(folder, 'models.yaml')
  const path = storyModel()
  writeFileSync(
    config,
    [
      `required: { model_name: ${path}, served_name: one }`,
      'hardware: { model_memory_mb: 50 }',
      'llm: { repetition_penalty: 1, max_model_len: 256 }',
      'engine: { kind: llama, threads: 1, gpu: false, sequences: 8 }',
      `models: [{ model_name: ${path}, served_name: two }]`,
    ].join('\n'),
  )
  const env = { NODE_OPTIONS: '--max-semi-space-size=8' }
  const server = startCommand(['serve', '--config', config, '--port', '0'], env)
  await server.seen('stop      Ctrl-C')
  return server
}

const toEndpoint = (server: RunningCommand): string =>
  /^endpoint {2}(\S+)/m.exec(server.stdout())?.[1] ?? ''

/** Counts the answers of each model, and the reasons of the refusals. */
class Tally {
  readonly answers = { one: 0, two: 0 }
  readonly refusals = new Map<string, number>()

  get answered(): number {
    return this.answers.one + this.answers.two
  }

  async count(model: 'one' | 'two', request: Promise<void>): Promise<void> {
    try {
      await request
      this.answers[model]++
    } catch (error) {
      if (!(error instanceof RefusedError)) throw error
      const reason = error.message.replace(/Request id: \S+/, '')
      this.refusals.set(reason, (this.refusals.get(reason) ?? 0) + 1)
    }
  }
}

it(
  `${clients} clients of two models that do not fit together, whose processes are killed`,
  { timeout: hangMs + minutes * 120_000 },
  async () => {
    const folder = mkdtempSync(join(tmpdir(), 'tutti-alternating-'))
    const server = await serve(folder)
    const endpoint = toEndpoint(server)
    const parent = server.child.pid ?? 0
    const tally = new Tally()
    const random = createRandom(chooseSeed())
    const end = performance.now() + minutes * 60_000
    let killed = 0
    const isOver = (): boolean => {
      const { one, two } = tally.answers
      return killed >= kills && Math.min(one, two) > 0 && performance.now() > end
    }

    const ask = async (number: number, round: number): Promise<void> => {
      const model = random() < 0.5 ? 'one' : 'two'
      const at = Math.floor(random() * surfaceAsks.length)
      const asked = surfaceAsks[at]?.(endpoint, model, `Client ${number} in round ${round} had a`)
      await tally.count(model, asked ?? Promise.reject(new RangeError(`no surface ${at}`)))
    }
    const runClient = async (number: number): Promise<void> => {
      for (let round = 0; round < 1 || !isOver(); round++) await ask(number, round)
    }
    const killProcesses = async (): Promise<void> => {
      while (!isOver()) {
        // The waiting requests of a model that does not load are refused: some must be answered.
        const until = tally.answered + Math.floor(random() * 40)
        const pid = await eventually(() => {
          const [found] = modelProcesses(parent)
          expect(isOver() || (tally.answered > until && found !== undefined)).toBe(true)
          return found
        })
        if (isOver() || pid === undefined) return
        process.kill(pid, 'SIGKILL')
        killed++
        await eventually(() => expect(isRunning(pid)).toBe(false))
      }
    }
    const samples = await sampleMemory(
      () => [parent],
      () =>
        Promise.all([
          ...Array.from({ length: clients }, (_, number) => runClient(number)),
          killProcesses(),
        ]),
    )
    await eventually(async () => {
      const health = await fetch(`${endpoint}/health`)
      expect(await health.json()).toMatchObject({ batch_config: { pending_requests: 0 } })
      expect(modelProcesses(parent)).toHaveLength(1)
    })
    const { answers, refusals } = tally
    const reasons = [...refusals].map(([reason, count]) => `${count} ${reason}`)
    process.stdout.write(`${JSON.stringify(answers)}, ${killed} kills, ${reasons.join(', ')}\n`)
    if (minutes > 0) expectNoGrowth(samples, minutes, `${tally.answered} answers`)
    for (const model of ['one', 'two']) {
      for (const asked of surfaceAsks) await asked(endpoint, model, 'Once upon a time there was a')
    }
    server.child.kill('SIGTERM')
    expect(await server.ended).toMatchObject({ code: 0 })
    rmSync(folder, { recursive: true })
  },
)
