/**
 * Prepares a clone for the other scripts: dependencies, the newer Node, the build, system packages.
 * Plain JavaScript, because it runs on the system's Node. Completed steps are skipped.
 */

import { spawn, spawnSync } from 'node:child_process'
import { createHash } from 'node:crypto'
import { chmodSync, existsSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { delimiter, join, relative } from 'node:path'
import { fileURLToPath } from 'node:url'
import { during } from './step-progress.mjs'

/** System commands that tests need, their Debian packages, and the tests that need them. */
const services = [
  { command: 'nats-server', package: 'nats-server', tests: 'the tests of the cluster backend' },
  { command: 'ip', package: 'iproute2', tests: 'the cluster tests that cut links between hosts' },
  { command: 'munged', package: 'munge', tests: 'the tests of the HPC backend' },
  { command: 'slurmctld', package: 'slurmctld', tests: 'the tests of the HPC backend' },
  { command: 'slurmd', package: 'slurmd', tests: 'the tests of the HPC backend' },
  { command: 'srun', package: 'slurm-client', tests: 'the tests of the HPC backend' },
  { command: 'mpirun', package: 'openmpi-bin', tests: 'the HPC tests that start MPI programs' },
  { command: 'mpicc', package: 'libopenmpi-dev', tests: 'the HPC tests that compile MPI programs' },
  { command: 'chromium', package: 'chromium', tests: 'the tests that look at reports' },
  { command: 'zsh', package: 'zsh', tests: 'the test of completion in zsh' },
  { command: 'fish', package: 'fish', tests: 'the test of completion in fish' },
  {
    command: 'python3',
    module: 'jinja2',
    package: 'python3-jinja2',
    tests: 'the comparison of chat templates with Jinja',
  },
  { command: 'strace', package: 'strace', tests: 'the checkpoint tests that count system calls' },
]

const root = fileURLToPath(new URL('..', import.meta.url))
const modules = join(root, 'node_modules')
const binaries = join(modules, '.bin')
const installStamp = join(modules, '.tutti-setup')
const buildStamp = join(modules, '.tutti-build')
const mainFile = join(root, 'dist', 'cli', 'main.js')
const moduleCache = join(root, '.cache', 'modules')
/** The output of the compiler, before it is bundled. */
const compiled = join(root, '.cache', 'compiled')
const bundler = join(root, 'scripts', 'bundle.mjs')
const policyFile = '/usr/sbin/policy-rc.d'

const manifest = JSON.parse(readFileSync(join(root, 'package.json'), 'utf8'))

await installDependencies()
await checkNode()
await build()
if (process.argv.includes('--model')) await installModel()
if (process.argv.includes('--services')) await installServices()

async function installDependencies() {
  const wanted = hashOfDependencies()
  if (existsSync(binaries) && readStamp(installStamp) === wanted) return
  const wantedFiles = filesOfDependencies()
  const { status, output } = await during(
    npm('ci', '--no-audit', '--no-fund', '--no-progress'),
    'installing dependencies (npm ci)',
    () =>
      `${wantedFiles.filter((file) => existsSync(file)).length} of ${wantedFiles.length} packages`,
  )
  if (status !== 0) fail('npm ci failed', output)
  writeFileSync(installStamp, wanted)
  say('dependencies are installed')
}

/** A file of each package in the lock file, which exists once the package is installed. */
function filesOfDependencies() {
  const { packages } = JSON.parse(readFileSync(join(root, 'package-lock.json'), 'utf8'))
  const isFor = (wanted, own) => wanted === undefined || wanted.includes(own)
  return Object.entries(packages)
    .filter(([path, { os, cpu }]) => {
      return path !== '' && isFor(os, process.platform) && isFor(cpu, process.arch)
    })
    .map(([path]) => join(root, path, 'package.json'))
}

/** Returns a hash of everything that affects the installation, but not of unrelated scripts. */
function hashOfDependencies() {
  const { dependencies, devDependencies, peerDependencies, overrides, allowScripts } = manifest
  return hash([
    readFileSync(join(root, 'package-lock.json')),
    JSON.stringify({ dependencies, devDependencies, peerDependencies, overrides, allowScripts }),
  ])
}

/** The npm package `node` downloads its binary in an install script, which may not have run. */
async function checkNode() {
  const wanted = majorOf(manifest.devDependencies.node)
  if (installedNode() === wanted) return
  const { output } = await during(npm('rebuild', 'node'), 'installing the newer Node (npm rebuild)')
  const found = installedNode()
  if (found !== wanted) {
    const have = found === undefined ? 'none' : `Node ${found}`
    fail(`node_modules/.bin/node should be Node ${wanted}, found ${have}`, output)
  }
}

function installedNode() {
  const { status, stdout } = spawnSync(join(binaries, 'node'), ['-v'], { encoding: 'utf8' })
  return status === 0 ? majorOf(stdout) : undefined
}

async function build() {
  const wanted = hashOfSources()
  if (existsSync(join(root, 'dist')) && readStamp(buildStamp) === wanted) return
  rmSync(buildStamp, { force: true })
  for (const folder of [join(root, 'dist'), moduleCache, compiled]) {
    rmSync(folder, { recursive: true, force: true })
  }
  const steps = [
    ['building, step 1 of 2: compiling', 'tsc', '-p', 'tsconfig.build.json'],
    ['building, step 2 of 2: bundling', 'node', bundler, compiled, join(root, 'dist')],
  ]
  for (const [title, command, ...args] of steps) {
    const { status, output } = await during(execute(join(binaries, command), args), title)
    if (status !== 0) fail('the build failed', output)
  }
  rmSync(compiled, { recursive: true, force: true })
  if (existsSync(mainFile)) chmodSync(mainFile, 0o755)
  writeFileSync(buildStamp, wanted)
}

/** Creates the small model for the demo and the tests, once. */
async function installModel() {
  if (existsSync(join(root, '.models', 'stories15M.gguf'))) return
  const args = [mainFile, 'model', 'get', 'stories15M', '--folder', join(root, '.models')]
  const making = execute(join(binaries, 'node'), args)
  const { status, output } = await during(making, 'creating the story model')
  if (status !== 0) fail('the story model could not be created', output)
}

function hashOfSources() {
  const source = join(root, 'src')
  const files = readdirSync(source, { recursive: true, withFileTypes: true })
    .filter((entry) => entry.isFile())
    .map((entry) => join(entry.parentPath ?? entry.path, entry.name))
  const settings = readdirSync(root)
    .filter((name) => /^tsconfig.*\.json$/.test(name))
    .map((name) => join(root, name))
  const all = [bundler, ...settings, ...files].toSorted((a, b) => (a < b ? -1 : 1))
  const parts = all.flatMap((file) => [relative(root, file), readFileSync(file)])
  const { typescript, rolldown } = manifest.devDependencies
  return hash([typescript, rolldown, JSON.stringify(manifest.exports), ...parts])
}

async function installServices() {
  const missing = services.filter((service) => !isInstalled(service))
  if (missing.length === 0) return
  if (process.getuid?.() === 0 && isOnPath('apt-get')) {
    await install(missing.map((service) => service.package))
  }
  for (const service of missing) {
    if (isInstalled(service)) continue
    say(`${service.package} could not be installed; not run: ${service.tests}`)
  }
}

/** A Python module counts only if the system's Python, or the first one in PATH, finds it. */
function isInstalled({ command, module }) {
  if (module === undefined) return isOnPath(command)
  return [`/usr/bin/${command}`, command].some(
    (program) => spawnSync(program, ['-c', `import ${module}`]).status === 0,
  )
}

async function install(packages) {
  await withoutStartingServices(async () => {
    const environment = { ...process.env, DEBIAN_FRONTEND: 'noninteractive' }
    const updating = execute('apt-get', ['update', '-q'], environment)
    const update = await during(updating, 'reading the list of packages (apt-get update)')
    const options = ['install', '-q', '-y', '--no-install-recommends']
    const installing = execute('apt-get', [...options, ...packages], environment)
    const result = await during(installing, `installing ${packages.join(', ')}`)
    if (result.status !== 0) say(lastLines(`${update.output}\n${result.output}`))
  })
}

/** Debian checks this policy file before it starts a new service. An existing file is kept. */
async function withoutStartingServices(action) {
  const isOurs = !existsSync(policyFile)
  if (isOurs) writeFileSync(policyFile, '#!/bin/sh\nexit 101\n', { mode: 0o755 })
  try {
    await action()
  } finally {
    if (isOurs) rmSync(policyFile, { force: true })
  }
}

/** Runs npm on the system's Node, because `npm ci` removes the newer one while it runs. */
function npm(...args) {
  const environment = { ...process.env, PATH: systemPath() }
  for (const name of Object.keys(environment)) {
    if (/^npm_(?:lifecycle|package|command|config_local)/.test(name)) delete environment[name]
  }
  return execute('npm', args, environment)
}

function systemPath() {
  return pathFolders()
    .filter((folder) => !folder.endsWith(join('node_modules', '.bin')))
    .join(delimiter)
}

function isOnPath(command) {
  return pathFolders().some((folder) => existsSync(join(folder, command)))
}

function pathFolders() {
  return (process.env.PATH ?? '').split(delimiter).filter((folder) => folder !== '')
}

/** Runs a program. Collects its output, to print it after a failure. */
function execute(command, args, env = process.env) {
  return new Promise((resolve) => {
    let output = ''
    const child = spawn(command, args, { cwd: root, env, stdio: ['ignore', 'pipe', 'pipe'] })
    for (const stream of [child.stdout, child.stderr]) {
      stream.setEncoding('utf8').on('data', (text) => (output += text))
    }
    child.on('error', ({ message }) =>
      resolve({ status: null, output: `${command}: ${message}\n` }),
    )
    child.on('close', (status) => resolve({ status, output }))
  })
}

function hash(parts) {
  const sum = createHash('sha256')
  for (const part of parts) sum.update(part).update('\0')
  return sum.digest('hex')
}

function readStamp(file) {
  return existsSync(file) ? readFileSync(file, 'utf8') : undefined
}

function majorOf(version) {
  return /\d+/.exec(version)?.[0]
}

function say(line) {
  process.stderr.write(`setup: ${withoutHosts(line)}\n`)
}

function fail(reason, output) {
  process.stderr.write(`${withoutHosts(output.trimEnd())}\n`)
  say(reason)
  process.exit(1)
}

/** Removes package registry hosts, which may be private. */
function withoutHosts(text) {
  return text.replace(/https?:\/\/[^\s/'"]+/g, 'https://<host>')
}

function lastLines(text) {
  return text.trimEnd().split('\n').slice(-5).join('\n')
}
