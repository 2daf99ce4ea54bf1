import { hostname, type NetworkInterfaceInfo } from 'node:os'
import { describe, expect, it } from 'vitest'
import { knownHosts } from '../../../src/inference/server/listening.ts'

const common = { netmask: '', mac: '', internal: false, cidr: null }
const interfaces = (): NodeJS.Dict<NetworkInterfaceInfo[]> => ({
  eth0: [
    { ...common, family: 'IPv4', address: '192.0.2.7' },
    { ...common, family: 'IPv6', address: '2001:db8::7', scopeid: 0 },
  ],
  eth1: undefined,
})
const names = ['localhost', '127.0.0.1', '[::1]', hostname()]

describe('known hosts', () => {
  it.each([
    ['127.0.0.1', []],
    ['192.0.2.7', []],
    ['0.0.0.0', ['192.0.2.7', '[2001:db8::7]']],
    ['[::]', ['192.0.2.7', '[2001:db8::7]']],
  ])('of %s are the names, the host and the addresses %j', (host, addresses) => {
    expect(knownHosts(host, interfaces)).toEqual([...names, host, ...addresses])
  })

  it('are the names and the host if the system does not reveal its addresses', () => {
    const silent = (): never => {
      throw new Error('uv_interface_addresses')
    }
    expect(knownHosts('::', silent)).toEqual([...names, '[::]'])
  })
})
