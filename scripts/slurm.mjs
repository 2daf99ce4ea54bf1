/**
 * A Slurm cluster of four nodes on this machine, for tests and for trying things out:
 *
 *     export $(node scripts/slurm.mjs up)    # prints SLURM_CONF=<path>
 *     srun -N4 hostname
 *     node scripts/slurm.mjs down
 *
 * Each node is a network, process and host name namespace with two GPUs that are `/dev/null`. The
 * cluster ends with the process that asked for it (`--parent PID`, by default the caller).
 */

import { execFileSync, spawn, spawnSync } from 'node:child_process'
import { randomBytes } from 'node:crypto'
import {
  chmodSync,
  closeSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  openSync,
  readdirSync,
  readFileSync,
  readlinkSync,
  rmSync,
  writeFileSync,
} from 'node:fs'
import { tmpdir } from 'node:os'
import { delimiter, dirname, join } from 'node:path'
import { fileURLToPath } from 'node:url'

const nodes = ['n1', 'n2', 'n3', 'n4']
const commands = ['munged', 'slurmctld', 'slurmd', 'srun', 'ip', 'unshare', 'setpriv']
const prefix = 'tutti-slurm-'
const startMs = 300_000
const self = fileURLToPath(import.meta.url)
const sleep = (ms) => new Promise((resolve) => setTimeout(resolve, ms))

const [command, ...args] = process.argv.slice(2)

async function up() {
  if (process.getuid?.() !== 0) fail('slurm: needs root, for network namespaces')
  install()
  removeAbandoned()
  const at = args.indexOf('--parent')
  const parent = at === -1 ? process.ppid : Number(args[at + 1])
  const folder = mkdtempSync(join(tmpdir(), prefix))
  const log = openSync(join(folder, 'supervisor.log'), 'w')
  const supervisor = spawn(process.execPath, [self, 'serve', folder, String(parent)], {
    detached: true,
    stdio: ['ignore', log, log],
  })
  closeSync(log)
  while (isRunning(supervisor) && !existsSync(join(folder, 'ready'))) await sleep(20)
  if (!isRunning(supervisor)) {
    const output = readFileSync(join(folder, 'supervisor.log'), 'utf8')
    rmSync(folder, { recursive: true, force: true })
    fail(`slurm: not started\n${output}`)
  }
  supervisor.unref()
  process.stdout.write(`SLURM_CONF=${join(folder, 'slurm.conf')}\n`)
}

/** Resolves when the cluster has ended and everything is removed. */
async function down(configuration) {
  if (configuration === undefined) fail('slurm: which one? Give SLURM_CONF.')
  const folder = dirname(configuration)
  const pid = supervisorOf(folder)
  if (pid === undefined) fail(`slurm: no cluster of this script at ${configuration}`)
  process.kill(pid, 'SIGTERM')
  while (isAlive(pid)) await sleep(20)
}

/** The supervisor process of a cluster, with which all its processes end. */
async function serve(folder, parent) {
  const birth = birthOf(parent)
  const cluster = new Cluster(folder)
  const stopped = Promise.withResolvers()
  for (const signal of ['SIGTERM', 'SIGINT', 'SIGHUP']) process.on(signal, stopped.resolve)
  const watch = setInterval(() => {
    if (birth === undefined || birthOf(parent) !== birth) stopped.resolve()
  }, 250)
  try {
    await cluster.start()
    await stopped.promise
  } catch (error) {
    console.error(error)
    process.exitCode = 1
  }
  clearInterval(watch)
  await cluster.stop(process.exitCode !== 1)
}

class Cluster {
  #folder
  #id = process.pid.toString(36)
  #bridge = `sl${this.#id}`
  #subnet = `10.${200 + (process.pid % 50)}.${(process.pid >> 6) % 250}`
  /** Child processes, which the system kills when this process ends. */
  #children = []
  #isStopping = false

  constructor(folder) {
    this.#folder = folder
  }

  async start() {
    writeFileSync(this.#path('supervisor.pid'), String(process.pid))
    this.#writeFiles()
    ip('link', 'add', this.#bridge, 'type', 'bridge')
    ip('addr', 'add', `${this.#subnet}.1/24`, 'dev', this.#bridge)
    ip('link', 'set', this.#bridge, 'up')
    const files = ['socket=munge.sock', 'pid-file=munged.pid', 'log-file=munged.log']
    const own = [...files, 'key-file=munge.key', 'seed-file=munge.seed'].map((option) => {
      const [name, file] = option.split('=')
      return `--${name}=${this.#path(file)}`
    })
    this.#spawn('munged', ['--force', '--foreground', '--num-threads=4', ...own])
    await this.#until('munged', () => existsSync(this.#path('munge.sock')))
    // A separate host, so that several clusters on one machine can use the same port.
    await Promise.all([
      this.#startHost('ctl', 2, 'slurmctld -D -i'),
      ...nodes.map((name, index) => this.#startHost(name, 11 + index, `slurmd -D -N ${name}`)),
    ])
    const idle = `${nodes.length} idle`
    await this.#until('slurmd', () => this.#ask('sinfo', '-h', '-o', '%D %t').trim() === idle)
    writeFileSync(this.#path('ready'), '')
  }

  /** Kills everything together: when a node's first process exits, its whole namespace ends. */
  async stop(isRemoved) {
    this.#isStopping = true
    for (const child of this.#children) child.kill('SIGKILL')
    while (this.#children.some((child) => isRunning(child))) await sleep(5)
    spawnSync('ip', ['link', 'del', this.#bridge], { stdio: 'ignore' })
    // Processes of a node may still be ending and writing files.
    if (isRemoved) rmSync(this.#folder, { recursive: true, force: true, maxRetries: 20 })
    process.exit()
  }

  /** The first process of a host is a shell, which reaps others and waits for the network. */
  async #startHost(name, number, daemon) {
    const device = `${this.#bridge}${name}`
    const script = [
      'read -r go',
      `hostname ${name}`,
      `ip addr add ${this.#subnet}.${number}/24 dev eth0`,
      'ip link set eth0 up',
      'ip link set lo up',
      `${daemon} & wait`,
      // Keeps a host whose daemon was killed, so that it can get another one.
      'while true; do sleep 1000 & wait; done',
    ].join('\n')
    const flags = ['--net', '--uts', '--pid', '--fork', '--mount-proc', '--kill-child=KILL']
    const host = this.#spawn('unshare', [...flags, 'bash', '-c', script], 'pipe')
    writeFileSync(this.#path(`${name}.pid`), String(host.pid))
    ip('link', 'add', device, 'type', 'veth', 'peer', 'name', `${device}e`)
    ip('link', 'set', device, 'master', this.#bridge, 'up')
    // The link must be moved after the host has left the namespace of this process.
    const here = namespaceOf(process.pid)
    await this.#until(name, () => namespaceOf(host.pid) !== here)
    ip('link', 'set', `${device}e`, 'netns', String(host.pid), 'name', 'eth0')
    host.stdin.write('\n')
  }

  #spawn(program, programArgs, stdin = 'ignore') {
    const child = spawn('setpriv', ['--pdeathsig', 'KILL', program, ...programArgs], {
      env: { ...process.env, SLURM_CONF: this.#path('slurm.conf') },
      stdio: [stdin, 'inherit', 'inherit'],
    })
    child.on('error', () => {})
    this.#children.push(child)
    return child
  }

  async #until(what, isDone) {
    const end = performance.now() + startMs
    while (!this.#isStopping && !isDone()) {
      if (performance.now() > end) throw new Error(`${what} is not ready after ${startMs / 1000} s`)
      await sleep(20)
    }
  }

  #ask(program, ...programArgs) {
    const env = { ...process.env, SLURM_CONF: this.#path('slurm.conf') }
    return spawnSync(program, programArgs, { env, encoding: 'utf8', timeout: 5000 }).stdout ?? ''
  }

  #path(...names) {
    return join(this.#folder, ...names)
  }

  #writeFiles() {
    for (const name of ['state', 'spool', 'tmp', 'dev']) mkdirSync(this.#path(name))
    for (const name of nodes) {
      mkdirSync(this.#path('tmp', name))
      mkdirSync(this.#path('spool', name))
    }
    // All users must be able to reach munged.
    chmodSync(this.#folder, 0o755)
    writeFileSync(this.#path('munge.key'), randomBytes(128), { mode: 0o400 })
    for (const index of [0, 1]) {
      execFileSync('mknod', [this.#path('dev', `gpu${index}`), 'c', '1', '3'])
    }
    const gpus = `NodeName=${nodes.join(',')} Name=gpu File=${this.#path('dev', 'gpu[0-1]')}`
    writeFileSync(this.#path('gres.conf'), `${gpus}\n`)
    writeFileSync(this.#path('cgroup.conf'), 'CgroupAutomount=no\n')
    writeFileSync(this.#path('slurm.conf'), this.#configuration())
  }

  #configuration() {
    const path = (...names) => this.#path(...names)
    const node = (name, index) =>
      `NodeName=${name} NodeHostname=${name} NodeAddr=${this.#subnet}.${11 + index} Port=17000`
    return `ClusterName=tutti
SlurmctldHost=ctl(${this.#subnet}.2)
SlurmctldPort=16817
SlurmUser=root
AuthType=auth/munge
AuthInfo=socket=${path('munge.sock')}
StateSaveLocation=${path('state')}
SlurmdSpoolDir=${path('spool', '%n')}
SlurmctldPidFile=${path('slurmctld.pid')}
SlurmdPidFile=${path('slurmd-%n.pid')}
# Nodes may have more processors and memory than this machine.
SlurmdParameters=config_overrides
ProctrackType=proctrack/linuxproc
# For --mpi=pmix: otherwise all nodes have the same folder in /tmp.
TmpFS=${path('tmp', '%n')}
TaskPlugin=task/none
MpiDefault=none
ReturnToService=2
SelectType=select/cons_tres
SelectTypeParameters=CR_Core_Memory
SchedulerType=sched/backfill
SchedulerParameters=batch_sched_delay=0,sched_min_interval=2000
JobAcctGatherType=jobacct_gather/linux
JobAcctGatherFrequency=1
AccountingStorageType=accounting_storage/none
MinJobAge=60
InactiveLimit=0
KillWait=30
SlurmdTimeout=30
GresTypes=gpu
DefMemPerCPU=64
NodeName=DEFAULT CPUs=4 RealMemory=4000 Gres=gpu:2 State=UNKNOWN
${nodes.map(node).join('\n')}
PartitionName=main Nodes=ALL Default=YES MaxTime=INFINITE State=UP
PartitionName=small Nodes=n1,n2 MaxTime=30 MaxNodes=2 State=UP
`
  }
}

/** Installs the missing commands from Debian, with the other services of the tests. */
function install() {
  const isMissing = (name) => !pathFolders().some((folder) => existsSync(join(folder, name)))
  if (!commands.some(isMissing)) return
  const setup = join(dirname(self), 'setup.mjs')
  spawnSync(process.execPath, [setup, '--services'], { stdio: ['ignore', 2, 2] })
  const missing = commands.filter(isMissing)
  if (missing.length > 0) fail(`slurm: not found: ${missing.join(', ')}`)
}

/** Removes the bridge and the folder of a supervisor that was killed. */
function removeAbandoned() {
  for (const name of readdirSync(tmpdir()).filter((one) => one.startsWith(prefix))) {
    const folder = join(tmpdir(), name)
    const file = join(folder, 'supervisor.pid')
    if (!existsSync(file) || supervisorOf(folder) !== undefined) continue
    const id = Number(readFileSync(file, 'utf8')).toString(36)
    spawnSync('ip', ['link', 'del', `sl${id}`], { stdio: 'ignore' })
    rmSync(folder, { recursive: true, force: true })
  }
}

/** Checks the command line, because process ids are reused. */
function supervisorOf(folder) {
  try {
    const pid = Number(readFileSync(join(folder, 'supervisor.pid'), 'utf8'))
    const line = readFileSync(`/proc/${pid}/cmdline`, 'utf8').split('\0')
    return line.includes('serve') && line.includes(folder) ? pid : undefined
  } catch {
    return undefined
  }
}

function isRunning({ exitCode, signalCode }) {
  return exitCode === null && signalCode === null
}

function isAlive(pid) {
  return birthOf(pid) !== undefined
}

/** The start time of a process, which distinguishes it from a later one with the same id. */
function birthOf(pid) {
  try {
    const fields = readFileSync(`/proc/${pid}/stat`, 'utf8').split(') ')[1]?.split(' ') ?? []
    return fields[0] === 'Z' ? undefined : fields[19]
  } catch {
    return undefined
  }
}

function namespaceOf(pid) {
  return readlinkSync(`/proc/${pid}/ns/net`)
}

function ip(...ipArgs) {
  execFileSync('ip', ipArgs, { stdio: ['ignore', 'inherit', 'inherit'] })
}

function pathFolders() {
  return (process.env.PATH ?? '').split(delimiter).filter((folder) => folder !== '')
}

function fail(message) {
  process.stderr.write(`${message}\n`)
  process.exit(1)
}

// Runs at the end, because the classes above must be initialized first.
if (command === 'up') await up()
else if (command === 'down') await down(args[0] ?? process.env.SLURM_CONF)
else if (command === 'serve') await serve(args[0], Number(args[1]))
else fail('usage: node scripts/slurm.mjs up [--parent PID] | down [SLURM_CONF]')
