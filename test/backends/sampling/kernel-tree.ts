/** A folder that looks like `/proc` and `/sys/fs/cgroup`, for tests to fill and change. */

import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { dirname, join } from 'node:path'

/** Files are changed in place, as seen through descriptors that are open. */
export class KernelTree implements Disposable {
  readonly root = mkdtempSync(join(tmpdir(), 'tutti-kernel-'))
  readonly procRoot = join(this.root, 'proc')
  readonly cgroupRoot = join(this.root, 'cgroup')

  write(files: Readonly<Record<string, string>>): void {
    for (const [name, text] of Object.entries(files)) {
      const path = join(this.root, name)
      mkdirSync(dirname(path), { recursive: true })
      writeFileSync(path, text)
    }
  }

  [Symbol.dispose](): void {
    rmSync(this.root, { recursive: true, force: true })
  }
}

/** A node with 4 processors, 1000 kB of memory, one disk and one network card. */
export const quietNode = {
  'proc/stat': stat(100, 900),
  'proc/meminfo': 'MemTotal: 1000 kB\nMemFree: 100 kB\nMemAvailable: 750 kB\n',
  'proc/diskstats': disk(10, 20),
  'proc/net/dev': network(300, 400),
}

export function stat(busy: number, idle: number): string {
  const processors = [0, 1, 2, 3].map((id) => `cpu${id} 1 0 0 1 0 0 0 0 0 0`)
  return [`cpu  ${busy} 0 0 ${idle} 0 0 0 0 0 0`, ...processors, 'ctxt 5', ''].join('\n')
}

export function disk(sectorsRead: number, sectorsWritten: number): string {
  return ` 254 0 vda 1 0 ${sectorsRead} 0 1 0 ${sectorsWritten} 0 0 0 0\n`
}

export function network(received: number, sent: number): string {
  const columns = `${received} 1 0 0 0 0 0 0 ${sent} 1 0 0 0 0 0 0`
  return `Inter-| Receive | Transmit\n face |bytes\n  eth0: ${columns}\n`
}
