import { describe, expect, it } from 'vitest'
import {
  parseCount,
  parseCpuMax,
  parseCpuQuota,
  parseMembership,
  parseStat,
} from '../../../src/backends/sampling/cgroup.ts'

const hybrid = '12:cpu,cpuacct:/job/7\n4:memory:/job/7/step\n1:name=systemd:/\n0::/user.slice\n'

describe('parseMembership', () => {
  it('parseMembership finds a controller of version 1, mounted alone or with others', () => {
    const membership = parseMembership(hybrid, 'cpuacct')
    expect(membership).toEqual({ version: 1, folders: ['cpuacct', 'cpu,cpuacct'], path: '/job/7' })
  })

  it('parseMembership takes version 2 where version 1 has no such controller', () => {
    const expected = { version: 2, folders: ['', 'unified'], path: '/user.slice' }
    expect(parseMembership(hybrid, 'io')).toEqual(expected)
    expect(parseMembership('0::/user.slice/\n', 'memory')).toEqual(expected)
  })

  it('parseMembership stays inside the mount', () => {
    expect(parseMembership('0::/../../x\n', 'cpu')?.path).toBe('/x')
    expect(parseMembership('0::/..\n', 'cpu')?.path).toBe('/')
  })

  it('parseMembership keeps a path that contains colons', () => {
    expect(parseMembership('0::/a:b/c\n', 'cpu')?.path).toBe('/a:b/c')
  })

  it('parseMembership finds nothing in another text', () => {
    expect(parseMembership('', 'cpu')).toBeUndefined()
    expect(parseMembership('4:memory:/\n', 'cpu')).toBeUndefined()
  })
})

describe('limits', () => {
  it('processor limits are a quota over its period', () => {
    expect(parseCpuMax('150000 100000\n')).toBe(1.5)
    expect(parseCpuQuota('50000\n', '100000\n')).toBe(0.5)
  })

  it('limits are null where there is none', () => {
    expect(['max 100000\n', '', null, '0 0', '5 0', '-1 5'].map(parseCpuMax)).toEqual(
      Array.from({ length: 6 }, () => null),
    )
    expect(parseCpuQuota('-1\n', '100000\n')).toBeNull()
    expect([parseCount('max\n'), parseCount('-1'), parseCount(null)]).toEqual([null, null, null])
    expect(parseCount('4096\n')).toBe(4096)
  })
})

describe('parseStat', () => {
  it('parseStat reads the line of exactly that name', () => {
    const text = 'total_inactive_file 1\ninactive_file 22\ninactive_file_x 3\n'
    expect(parseStat(text, 'inactive_file')).toBe(22)
    expect(parseStat(text, 'file')).toBeNull()
  })
})
