import { execFileSync } from 'node:child_process'
import { mkdirSync, readFileSync, readdirSync, readlinkSync } from 'node:fs'
import { symlinkSync, writeFileSync } from 'node:fs'
import { hostname } from 'node:os'
import { basename, join } from 'node:path'
import { describe, expect, it } from 'vitest'
import { acquireLock, expectUnlocked, isHeld, readRemoteJob } from '../../src/checkpoint/lock.ts'
import { CheckpointError } from '../../src/foundation/errors.ts'
import { startChild } from './child.ts'
import { openWriter, tempFolder, thrownBy } from './open-writer.ts'

const turn = (): Promise<void> => new Promise((resolve) => setImmediate(resolve))
const lockPath = (): string => join(tempFolder(), 'session-1.telemetry.lock')

/** The lock file that a killed and reaped child process has left. */
async function deadLock(): Promise<string> {
  const path = lockPath()
  const child = startChild('take-locks.ts', [])
  await child.nextLine()
  child.send(`take ${path}`)
  expect(await child.nextLine()).toBe('won')
  child.process.kill('SIGKILL')
  await child.ended
  return readFileSync(path, 'utf8')
}

function isOpenAt(fd: string, path: string): boolean {
  try {
    return readlinkSync(`/proc/self/fd/${fd}`) === path
  } catch {
    // That of the folder itself, closed meanwhile.
    return false
  }
}

describe('row 51: one process per session', () => {
  it('row 51: a second writer in the process is refused until the first closes', async () => {
    const folder = tempFolder()
    const first = openWriter({ folder }).writer
    const error = thrownBy(() => openWriter({ folder }))
    expect(error).toBeInstanceOf(CheckpointError)
    expect(error).toMatchObject({ code: 'CheckpointLockedError', pid: process.pid })
    expect(readdirSync(folder)).toHaveLength(2)
    await openWriter({ folder, sessionId: 'session-2' }).writer.close()
    await first.close()
    await openWriter({ folder }).writer.close()
    expect(readdirSync(folder).filter((name) => name.includes('lock'))).toEqual([])
  })

  it('row 51: a live process holds its lock, that of a killed one is taken over', async () => {
    const path = lockPath()
    const child = startChild('take-locks.ts', [])
    await child.nextLine()
    child.send(`take ${path}`)
    expect(await child.nextLine()).toBe('won')
    expect(thrownBy(() => acquireLock(path))).toMatchObject({
      code: 'CheckpointLockedError',
      pid: child.pid,
    })
    child.process.kill('SIGKILL')
    await child.ended
    const lock = acquireLock(path)
    expect(JSON.parse(readFileSync(path, 'utf8'))).toMatchObject({ pid: process.pid })
    lock.release()
    expect(readdirSync(join(path, '..'))).toEqual([])
  })

  it('row 51: the lock of a job on another host is taken over once the job has ended', () => {
    const path = lockPath()
    const job = { id: '35', cluster: 'alpha' }
    const holder = { pid: 1, start_time: null, host: 'elsewhere', token: '0123456789ab', job }
    writeFileSync(path, JSON.stringify(holder))
    expect(readRemoteJob(path)).toEqual(job)
    for (const other of [null, { ...job, id: '36' }, { ...job, cluster: 'beta' }]) {
      const error = thrownBy(() => expectUnlocked(path, other))
      expect(error).toMatchObject({ code: 'CheckpointLockedError', pid: 1 })
      expect(error).toMatchObject({ hint: expect.stringContaining('Slurm job 35') as unknown })
    }
    expectUnlocked(path, job)
    expect(readdirSync(join(path, '..'))).toEqual([])
    // On this host, the process itself is checked.
    writeFileSync(path, JSON.stringify({ ...holder, host: hostname() }))
    expect(readRemoteJob(path)).toBeNull()
  })

  it('row 51: the lock of a killed process that is still a zombie is taken over', async () => {
    const path = lockPath()
    const shell = '"$@" <&0 & exec sleep infinity'
    const child = startChild('take-locks.ts', [], { shell })
    await child.nextLine()
    child.send(`take ${path}`)
    expect(await child.nextLine()).toBe('won')
    const { pid } = JSON.parse(readFileSync(path, 'utf8'))
    process.kill(pid, 'SIGKILL')
    while (!readFileSync(`/proc/${pid}/stat`, 'utf8').includes(') Z ')) await turn()
    acquireLock(path).release()
    expect(readdirSync(join(path, '..'))).toEqual([])
  })

  it('row 51: the lock of a process whose pid was reused is taken over, by its start time', () => {
    const path = lockPath()
    const token = '0123456789ab'
    const holder = { pid: process.pid, start_time: '1', host: hostname(), token }
    writeFileSync(path, JSON.stringify(holder))
    acquireLock(path).release()
    expect(readdirSync(join(path, '..'))).toEqual([])
  })

  it('row 51: a lock names the start time of its process, as the system counts it', () => {
    const path = lockPath()
    const lock = acquireLock(path)
    const stat = readFileSync('/proc/self/stat', 'latin1')
    expect(JSON.parse(readFileSync(path, 'utf8'))).toMatchObject({
      start_time: stat.slice(stat.lastIndexOf(')') + 2).split(' ')[19],
    })
    lock.release()
  })

  it('row 51: a live process without a known start time holds its lock', () => {
    const path = lockPath()
    const token = '0123456789ab'
    const holder = { pid: process.pid, start_time: null, host: hostname(), token }
    writeFileSync(path, JSON.stringify(holder))
    expect(thrownBy(() => acquireLock(path))).toMatchObject({ pid: process.pid })
  })

  it('row 51: a file is held only if it names a live process', async () => {
    const [missing, held, dead, unreadable] = [lockPath(), lockPath(), lockPath(), lockPath()]
    const lock = acquireLock(held)
    writeFileSync(dead, await deadLock())
    writeFileSync(unreadable, 'garbage')
    const folder = tempFolder()
    const answers = [missing, held, dead, unreadable, folder].map((path) => isHeld(path))
    expect(answers).toEqual([false, true, false, false, false])
    lock.release()
    expect(isHeld(held)).toBe(false)
  })

  it('row 51: a question for the holder leaves no open descriptor', () => {
    const path = lockPath()
    writeFileSync(path, 'garbage')
    const open = (): string[] => readdirSync('/proc/self/fd').filter((fd) => isOpenAt(fd, path))
    expect(isHeld(path)).toBe(false)
    expect(open()).toEqual([])
  })

  it('row 51: the lock of a process on another host holds', () => {
    const path = lockPath()
    const holder = { pid: 1, start_time: '1', host: 'elsewhere', token: '0123456789ab' }
    writeFileSync(path, JSON.stringify(holder))
    const error = thrownBy(() => acquireLock(path))
    expect(error).toMatchObject({ code: 'CheckpointLockedError', pid: 1 })
    expect(error).toHaveProperty('hint', expect.stringContaining('remove the lock file'))
  })

  it('row 51: the loser of a race for a dead lock is shown that lock, not its claim', () => {
    const path = lockPath()
    const token = '0123456789ab'
    const holder = { pid: process.pid, start_time: '1', host: hostname(), token }
    writeFileSync(path, JSON.stringify(holder))
    const claim = acquireLock(`${path}.${token}`)
    const error = thrownBy(() => acquireLock(path, { purpose: 'resume' }))
    claim.release()
    expect(error).toMatchObject({ code: 'CheckpointLockedError', path, pid: process.pid })
    expect(error).toHaveProperty('message', expect.stringMatching(/: .*\.telemetry\.lock$/))
    expect(error).toHaveProperty('hint', expect.stringContaining('resume the last file'))
  })

  it('row 51: an unreadable lock is taken over', () => {
    for (const text of ['', 'garbage', '{}', '{"pid":-1}', '[]', 'null', '\0'.repeat(9_000)]) {
      const path = lockPath()
      writeFileSync(path, text)
      acquireLock(path).release()
      expect(readdirSync(join(path, '..'))).toEqual([])
    }
  })

  it('row 51: a folder, FIFO or link with the name of the lock is an error and is kept', () => {
    const target = lockPath()
    writeFileSync(target, 'precious')
    const makers: ((path: string) => unknown)[] = [
      (path) => mkdirSync(path),
      (path) => execFileSync('mkfifo', [path]),
      (path) => symlinkSync(target, path),
    ]
    for (const make of makers) {
      const path = lockPath()
      make(path)
      expect(thrownBy(() => acquireLock(path))).toBeInstanceOf(CheckpointError)
      expect(readdirSync(join(path, '..'))).toEqual([basename(path)])
    }
    expect(readFileSync(target, 'utf8')).toBe('precious')
  })

  it('row 51: release does not remove a lock that another process has taken over', () => {
    const path = lockPath()
    const lock = acquireLock(path)
    const other = JSON.stringify({ pid: 1, start_time: '1', host: 'x', token: 'ba9876543210' })
    writeFileSync(path, other)
    lock.release()
    lock.release()
    expect(readFileSync(path, 'utf8')).toBe(other)
  })

  it('row 51: exactly one of several processes that lock at the same time succeeds', async () => {
    const dead = await deadLock()
    const children = [1, 2, 3].map(() => startChild('take-locks.ts', []))
    for (const child of children) expect(await child.nextLine()).toBe('ready')
    const pids = children.map((child) => String(child.pid))
    for (let round = 0; round < 60; round++) {
      const path = lockPath()
      const left = [undefined, dead, 'garbage'][round % 3]
      if (left !== undefined) writeFileSync(path, left)
      for (const child of children) child.send(`take ${path}`)
      const answers = await Promise.all(children.map((child) => child.nextLine()))
      const losers = answers.filter((answer) => answer !== 'won')
      expect(losers).toHaveLength(2)
      for (const loser of losers) {
        const [code, pid] = loser.split(' ')
        expect(code).toBe('CheckpointLockedError')
        expect(pids).toContain(pid)
      }
      for (const child of children) child.send('release')
      for (const child of children) expect(await child.nextLine()).toBe('released')
      expect(readdirSync(join(path, '..'))).toEqual([])
    }
  })
})
