import { readFileSync } from 'node:fs'
import { describe, expect, it } from 'vitest'
import {
  countProcessors,
  parseCpuUsage,
  parseDiskBytes,
  parseMemory,
  parseNetBytes,
} from '../../../src/backends/sampling/node-sampler.ts'

const fixture = (name: string): string =>
  readFileSync(new URL(`./fixtures/${name}`, import.meta.url), 'utf8')

const notOurs = ['', '\n', 'cpu\n', 'garbage: x\n', 'cpu  a b c d\n', '\0\0\0', '   7 0 vda\n']

describe('/proc/stat', () => {
  it('/proc/stat counts waiting for disks as idle, and guests once', () => {
    // user nice system idle iowait irq softirq steal guest guest_nice
    expect(parseCpuUsage('cpu  100 10 20 500 50 1 2 3 90 9\n')).toEqual({ busy: 136, total: 686 })
  })

  it('/proc/stat needs only its first line, and the columns of an old kernel', () => {
    expect(parseCpuUsage('cpu  1 2 3 4')).toEqual({ busy: 6, total: 10 })
  })

  it('/proc/stat contains the number of processors', () => {
    expect(countProcessors(fixture('stat.txt'))).toBe(2)
  })

  it('/proc/stat gives nothing for other text', () => {
    expect(notOurs.map(parseCpuUsage)).toEqual(notOurs.map(() => null))
  })
})

describe('/proc/meminfo', () => {
  it('/proc/meminfo gives bytes', () => {
    const memory = parseMemory('MemTotal:  1000 kB\nMemFree: 1 kB\nMemAvailable:    250 kB\n')
    expect(memory).toEqual({ totalBytes: 1_024_000, availableBytes: 256_000 })
  })

  it('/proc/meminfo gives nothing for other text', () => {
    const texts = [...notOurs, 'MemTotal: 1000 kB\n', 'MemTotal: 0 kB\nMemAvailable: 0 kB\n']
    expect(texts.map(parseMemory)).toEqual(texts.map(() => null))
  })
})

describe('/proc/diskstats', () => {
  it('/proc/diskstats counts whole disks only, in bytes', () => {
    // sda, nvme0n1, mmcblk0 and an xvda1 that is a whole disk: 1 sector read and 2 written each.
    const bytes = parseDiskBytes(fixture('diskstats.txt'))
    expect(bytes).toEqual({ read: 4 * 512, written: 4 * 2 * 512 })
  })

  it('/proc/diskstats is zero on a machine that has only uncounted devices', () => {
    expect(parseDiskBytes('   7 0 loop0 1 0 5 0 1 0 5 0 0 0 0\n')).toEqual({ read: 0, written: 0 })
  })

  it('/proc/diskstats gives nothing for other text', () => {
    expect(notOurs.map(parseDiskBytes)).toEqual(notOurs.map(() => null))
    expect(parseDiskBytes('8 0 sda 1 0 x 0 1 0 5 0 0 0 0\n')).toBeNull()
  })
})

describe('/proc/net/dev', () => {
  it('/proc/net/dev adds up all interfaces but the loopback, glued and aliased names too', () => {
    expect(parseNetBytes(fixture('net-dev.txt'))).toEqual({ received: 1_011, sent: 2_022 })
  })

  it('/proc/net/dev gives nothing for other text', () => {
    expect(notOurs.map(parseNetBytes)).toEqual(notOurs.map(() => null))
  })
})
