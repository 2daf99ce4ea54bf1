import { writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { expect, it, onTestFinished } from 'vitest'
import { TestViewer } from '../../dashboard/test-dashboard.ts'
import { eventually } from '../../eventually.ts'
import { nodeCommand, PseudoTerminal } from '../../pseudo-terminal.ts'
import { needs, requireCommand } from '../../require.ts'
import { tempFolder } from '../../telemetry/open-telemetry.ts'
import { builtMain, runHere, type RunningCommand, startCommandIn } from '../run-command.ts'

/** Waits for the link that a command prints. */
async function openLink(command: RunningCommand): Promise<TestViewer> {
  onTestFinished(() => void command.child.kill('SIGKILL'))
  await command.seen('/?t=')
  return await TestViewer.open(/http:\/\/\S+/.exec(command.output())?.[0] ?? '')
}

/** A task that runs until the file `go` is there. */
const waitingTask = JSON.stringify({
  uid: 'waits',
  executable: 'sh',
  arguments: ['-c', 'while [ ! -e go ]; do sleep 0.05; done'],
})

it('tutti dashboard serves a record until a signal, and a folder as a list', async () => {
  const folder = tempFolder()
  writeFileSync(join(folder, 'tasks.jsonl'), '{ "executable": "true" }\n')
  await runHere(folder, ['run', 'tasks.jsonl', '--quiet'])
  const command = startCommandIn(folder, ['dashboard', '--port', '0'])
  const viewer = await openLink(command)
  await eventually(async () => expect((await viewer.head()).counts.done).toBe(1))
  command.child.kill('SIGTERM')
  expect(await command.ended).toMatchObject({ code: 143, stderr: '' })
  const list = startCommandIn(folder, ['--json', 'dashboard', 'telemetry', '--port', '0'])
  onTestFinished(() => void list.child.kill('SIGKILL'))
  await list.seen('}')
  const { url } = JSON.parse(list.stdout()) as { readonly url: string }
  const { records } = await (await TestViewer.open(url)).view({ kind: 'records' })
  expect(records).toMatchObject([{ state: 'ended', done: 1 }])
  list.child.kill('SIGINT')
  expect((await list.ended).code).toBe(130)
})

it('tutti dashboard refuses what is no record, a pipe and wrong options', async () => {
  const folder = tempFolder()
  writeFileSync(join(folder, 'other.txt'), 'text\n')
  for (const [args, message] of [
    [['none'], /there is no file, folder or session "none"/],
    [['other.txt'], /is not a record/],
    [['other.txt', '--port', '70000'], /0 to 65535/],
    [['other.txt', '--allow-host', 'a b'], /expected a name/],
  ] as const) {
    const { code, stderr } = await runHere(folder, ['dashboard', ...args])
    expect([code, stderr], args.join(' ')).toEqual([2, expect.stringMatching(message)])
  }
})

it('tutti run --dashboard shows the tasks while they run', async () => {
  const folder = tempFolder()
  writeFileSync(join(folder, 'tasks.jsonl'), `${waitingTask}\n`)
  const command = startCommandIn(folder, ['run', '--dashboard', 'tasks.jsonl'])
  const viewer = await openLink(command)
  await eventually(async () => {
    expect(await viewer.head()).toMatchObject({ state: 'running', counts: { running: 1 } })
  })
  writeFileSync(join(folder, 'go'), '')
  expect((await command.ended).code).toBe(0)
})

it('tutti run --dashboard finds the record of a script, to which stdout belongs', async () => {
  const folder = tempFolder()
  const script = `
    import { ComputeTask, ConcurrentBackend, Session } from ${JSON.stringify(
      new URL('../../../dist/index.js', import.meta.url).href,
    )}
    await using session = new Session([await ConcurrentBackend.create()])
    await session.startTelemetry({ checkpointPath: 'telemetry' })
    const task = new ComputeTask(${waitingTask})
    await session.waitTasks(await session.submitTasks([task]))
    console.log('script')
  `
  writeFileSync(join(folder, 'script.mjs'), script)
  const command = startCommandIn(folder, ['run', '--dashboard', 'script.mjs'])
  const viewer = await openLink(command)
  await eventually(async () => expect((await viewer.head()).counts.running).toBe(1))
  writeFileSync(join(folder, 'go'), '')
  expect(await command.ended).toMatchObject({ code: 0, stdout: 'script\n' })
})

it('tutti run SCRIPT --dashboard says that the script gets the option', async () => {
  const folder = tempFolder()
  writeFileSync(join(folder, 'script.mjs'), 'console.log(process.argv[2])\n')
  const { stdout, stderr } = await startCommandIn(folder, ['run', 'script.mjs', '--dashboard'])
    .ended
  expect(stdout).toBe('--dashboard\n')
  expect(stderr).toContain('--dashboard is given to the script; write it before the script')
})

it('tutti serve --dashboard shows requests, batches and workers', async () => {
  const folder = tempFolder()
  const config = 'required:\n  model_name: tiny\nengine:\n  kind: echo\n'
  writeFileSync(join(folder, 'model.yaml'), config)
  const args = ['serve', '--config', 'model.yaml', '--port', '0', '--dashboard']
  const command = startCommandIn(folder, args)
  const viewer = await openLink(command)
  await command.seen('Ctrl-C')
  const endpoint = /^endpoint {2}(\S+)/m.exec(command.stdout())?.[1] ?? ''
  const body = JSON.stringify({ messages: [{ role: 'user', content: 'hello' }] })
  const headers = { 'content-type': 'application/json' }
  for (let count = 0; count < 3; count++) {
    const chat = { method: 'POST', headers, body }
    expect((await fetch(`${endpoint}/v1/chat/completions`, chat)).status).toBe(200)
  }
  await eventually(async () => {
    const view = await viewer.view({ kind: 'inference', filter: {} })
    expect(view).toMatchObject({
      models: [{ model: 'tiny', done: 3, failed: 0, running: 0, waiting: 0 }],
      batches: { count: 3, requests: 3 },
    })
    expect(view.server.slice(0, 2)).toEqual([
      { title: 'workers', value: '1' },
      { title: 'requests by route', value: '/v1/chat/completions 3' },
    ])
  })
  expect(await viewer.head()).toMatchObject({
    state: 'running',
    beginsAt: null,
    verdict: '1 worker of tiny: 0 requests running, 0 waiting.',
    serving: { model: 'tiny', workers: 1, running: 0, waiting: 0, done: 3, failed: 0, batches: 3 },
  })
  command.child.kill('SIGTERM')
  expect((await command.ended).code).toBe(0)
})

const script = requireCommand('script')

needs(script)('tutti demo --keep-open begins with the link, and waits for Enter', async () => {
  const folder = tempFolder()
  const args = ['demo', '--keep-open', '--simulations', '10', '--folder', folder]
  const terminal = new PseudoTerminal(nodeCommand(builtMain, ...args), { columns: 100, rows: 30 })
  await terminal.shows(/press Enter/)
  const text = terminal.screen.lines.join('\n')
  expect(text).toMatch(/^\/dev\/\S+\ndashboard {2}http:\/\/127\.0\.0\.1:\d+\/\?t=[\w-]{32}\n/)
  const viewer = await TestViewer.open(/http:\/\/\S+/.exec(text)?.[0] ?? '')
  await eventually(async () => expect((await viewer.head()).state).toBe('ended'))
  terminal.type('\r')
  expect(await terminal.ended).toBe(0)
})

it('tutti demo --keep-open ends without a terminal', async () => {
  const folder = tempFolder()
  const args = ['demo', '--keep-open', '--simulations', '10', '--folder', folder]
  const { code, stderr } = await startCommandIn(folder, args).ended
  expect([code, stderr]).toEqual([0, expect.stringMatching(/^dashboard {2}http:/)])
})
