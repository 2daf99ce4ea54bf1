/** Packs the package, installs it into an empty folder and uses it as a new user would. */

import { spawnSync } from 'node:child_process'
import { existsSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'

const events = [
  'SessionStarted',
  'SessionEnded',
  'TaskCreated',
  'TaskSubmitted',
  'TaskQueued',
  'TaskStarted',
  'TaskCompleted',
  'TaskFailed',
  'TaskCanceled',
  'ResourceUpdate',
]
const errors = [
  'TuttiError',
  'ValueError',
  'StateError',
  'TimeoutError',
  'WorkerLostError',
  'BackendError',
  'InferenceError',
  'CheckpointError',
  'TaskFailedError',
  'ExecutableFailedError',
  'TaskCanceledError',
]

/** The exports that each entry point must have at least. Each entry of package.json needs a row. */
const entryPoints = {
  '.': [
    'Session',
    'ComputeTask',
    'AITask',
    'defineTask',
    'ConcurrentBackend',
    'NoopBackend',
    'TelemetryManager',
    'defineEvent',
    'makeEvent',
    'toEventNotice',
    'runInTask',
    'currentTask',
    ...events,
    ...errors,
  ],
  './inference': [
    'InferenceBackend',
    'loadInferenceConfig',
    'createEchoEngine',
    'createLlamaEngine',
    'createOpenAiEngine',
    'createProcessEngine',
  ],
  './workflow': ['WorkflowEngine', 'DependencyFailedError'],
  './cluster': ['ClusterBackend'],
  './hpc': ['HpcBackend', 'setStartMethod', 'SchedulerError'],
  './dashboard': ['startDashboard'],
  './testing': [
    'ManualClock',
    'RecordingSink',
    'FakeBackend',
    'backendContract',
    'inferenceEngineContract',
  ],
}

const refused = ['internal/clock', 'dist/index.js', 'foundation/clock', 'src/index.ts']
const optionalPeers = ['koffi', 'node-llama-cpp']
const maxPackages = 20
const lifecycle = /^(?:pre|post)?(?:install|prepare|publish|publishOnly|pack)$|^dependencies$/

const root = fileURLToPath(new URL('..', import.meta.url))
const binaries = join(root, 'node_modules', '.bin')
const manifest = JSON.parse(readFileSync(join(root, 'package.json'), 'utf8'))
const documented = Object.keys(manifest.exports).filter(
  (key) => key !== './package.json' && manifest.exports[key] !== null,
)
const specifierOf = (entryPoint) => `${manifest.name}${entryPoint.slice(1)}`

const workshop = mkdtempSync(join(tmpdir(), 'tutti-pack-'))
const consumer = join(workshop, 'consumer')
let passed = 0
let failed = 0
try {
  inspect()
} finally {
  rmSync(workshop, { recursive: true, force: true })
}
process.stdout.write(`${passed} passed, ${failed} failed\n`)
process.exitCode = failed === 0 ? 0 : 1

function inspect() {
  let packed
  check('npm pack', () => {
    packed = JSON.parse(run('npm', ['pack', '--json', '--pack-destination', workshop], root))[0]
  })
  if (packed === undefined) return
  const tarball = join(workshop, packed.filename)
  const paths = packed.files.map((file) => file.path)
  check('holds only what is meant to be published', () => checkContents(paths))
  check('row 103: no lifecycle scripts, pinned and few dependencies', checkSupply)
  let isInstalled = false
  check('installs into an empty folder', () => {
    install(tarball)
    isInstalled = true
  })
  check('publint', () => run(join(binaries, 'publint'), ['run', tarball, '--strict'], workshop))
  check('are the types wrong', () => {
    run(join(binaries, 'attw'), [tarball, '--profile', 'esm-only', '--no-emoji'], workshop)
  })
  if (!isInstalled) return
  check('row 104: optional peers are not installed', checkPeers)
  for (const entryPoint of documented) {
    check(`import ${specifierOf(entryPoint)}`, () => checkExports(entryPoint))
  }
  for (const path of refused) {
    check(`${manifest.name}/${path} is refused`, () => checkRefused(`${manifest.name}/${path}`))
  }
  check('a consumer type-checks', checkTypes)
}

function check(name, action) {
  try {
    action()
    passed++
    process.stdout.write(`ok     ${name}\n`)
  } catch (error) {
    failed++
    process.stdout.write(`FAILED ${name}\n${error.message}\n`)
  }
}

function checkContents(paths) {
  const published = [
    /^dist\/.+\.(?:js|d\.ts)$/,
    /^dist\/dashboard\/page\/page\.(?:css|html|svg)$/,
    /^dist\/inference\/server\/chat-page\.html$/,
    /^docs\/.+\.(?:md|json)$/,
    /^docs\/guide\/pictures\/.+\.png$/,
    /^examples\/.+\.(?:ts|yaml)$/,
    /^(?:README\.md|CONTRIBUTING\.md|CHANGELOG\.md|LICENSE|package\.json)$/,
  ]
  expectNone(
    'not meant to be published',
    paths.filter((path) => !published.some((pattern) => pattern.test(path))),
  )
  const required = [
    'README.md',
    'CHANGELOG.md',
    'LICENSE',
    'package.json',
    'dist/index.js',
    'dist/inference/server/chat-page.html',
  ]
  expectNone(
    'missing',
    required.filter((path) => !paths.includes(path)),
  )
}

function checkSupply() {
  const scripts = Object.keys(manifest.scripts ?? {})
  expectNone(
    'lifecycle scripts',
    scripts.filter((name) => lifecycle.test(name)),
  )
  const dependencies = Object.entries(manifest.dependencies ?? {})
  expectNone('not pinned', dependencies.filter(([, range]) => !/^\d/.test(range)).map(String))
  const lock = JSON.parse(readFileSync(join(root, 'package-lock.json'), 'utf8'))
  const shipped = Object.entries(lock.packages).filter(([path, entry]) => {
    return path !== '' && !entry.dev && !entry.devOptional && !entry.peer
  })
  const scripted = shipped.filter(([, entry]) => entry.hasInstallScript)
  expectNone(
    'dependencies with install scripts',
    scripted.map(([path]) => path),
  )
  if (shipped.length > maxPackages) throw new Error(`${shipped.length} packages are installed`)
}

function install(tarball) {
  mkdirSync(consumer)
  writeFileSync(join(consumer, 'package.json'), '{ "private": true, "type": "module" }\n')
  run('npm', ['install', '--no-save', '--no-audit', '--no-fund', tarball], consumer)
}

function checkPeers() {
  const present = optionalPeers.filter((name) => existsSync(join(consumer, 'node_modules', name)))
  expectNone('installed although optional', present)
}

function checkExports(entryPoint) {
  const wanted = entryPoints[entryPoint]
  if (wanted === undefined) throw new Error('has no row in the table of this script')
  const namespace = `await import('${specifierOf(entryPoint)}')`
  const names = JSON.parse(runModule(`console.log(JSON.stringify(Object.keys(${namespace})))`))
  expectNone(
    'not exported',
    wanted.filter((name) => !names.includes(name)),
  )
}

function checkRefused(specifier) {
  const code = runModule(
    `console.log(await import('${specifier}').then(() => 'imported', (error) => error.code))`,
  ).trim()
  if (code !== 'ERR_PACKAGE_PATH_NOT_EXPORTED') throw new Error(`expected a refusal, got ${code}`)
}

/** Compiles with `skipLibCheck` off, to find declarations that refer to unpublished files. */
function checkTypes() {
  const lines = documented.flatMap((entryPoint, at) => {
    const names = entryPoints[entryPoint] ?? []
    const uses = names.map((name) => `void module${at}.${name}`)
    return [`import * as module${at} from '${specifierOf(entryPoint)}'`, ...uses]
  })
  writeFileSync(join(consumer, 'consumer.ts'), `${lines.join('\n')}\n`)
  const compilerOptions = {
    module: 'nodenext',
    target: 'es2023',
    lib: ['es2024', 'esnext.disposable'],
    types: ['node'],
    typeRoots: [join(root, 'node_modules', '@types')],
    strict: true,
    exactOptionalPropertyTypes: true,
    skipLibCheck: false,
    noEmit: true,
  }
  const settings = JSON.stringify({ compilerOptions, files: ['consumer.ts'] })
  writeFileSync(join(consumer, 'tsconfig.json'), settings)
  run(join(binaries, 'tsc'), ['-p', 'tsconfig.json'], consumer)
}

function runModule(program) {
  return run(process.execPath, ['--input-type=module', '-e', program], consumer)
}

function run(command, args, cwd) {
  const env = { ...process.env, NO_COLOR: '1' }
  for (const name of Object.keys(env)) {
    if (/^npm_(?:lifecycle|package|command|config_local)/.test(name)) delete env[name]
  }
  const result = spawnSync(command, args, {
    cwd,
    env,
    encoding: 'utf8',
    stdio: ['ignore', 'pipe', 'pipe'],
    timeout: 300_000,
    killSignal: 'SIGKILL',
  })
  if (result.status === 0) return result.stdout
  const end = result.error?.message ?? `ended with ${result.signal ?? result.status}`
  throw new Error(`${command.split('/').at(-1)} ${end}\n${result.stdout}${result.stderr}`)
}

function expectNone(what, list) {
  if (list.length > 0) throw new Error(`${what}: ${list.join(', ')}`)
}
