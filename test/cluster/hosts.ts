/** Hosts that are network namespaces of this machine, each with a link that can be cut. */

import { execFileSync } from 'node:child_process'
import { requireCommand, requirement } from '../require.ts'

export const networkNeeds = [
  requirement(process.getuid?.() === 0, 'needs root, for network namespaces'),
  requireCommand('ip'),
  requireCommand('nsenter'),
]

/** Removed by `close`. */
export class TestNetwork {
  readonly #id = process.pid.toString(36)
  readonly #subnet = `10.${100 + (process.pid % 100)}.${(process.pid >> 7) % 250}`
  readonly #hosts: string[] = []
  readonly #bridge = `tt${this.#id}`

  constructor() {
    ip('link', 'add', this.#bridge, 'type', 'bridge')
    ip('addr', 'add', `${this.address}/24`, 'dev', this.#bridge)
    ip('link', 'set', this.#bridge, 'up')
  }

  /** The address of this machine, as the hosts see it. */
  get address(): string {
    return `${this.#subnet}.1`
  }

  /** Returns its address, and the command that runs another one on the new host. */
  addHost(): { readonly index: number; readonly address: string; readonly enter: string[] } {
    const index = this.#hosts.length
    const name = `tt${this.#id}-${index}`
    this.#hosts.push(name)
    ip('netns', 'add', name)
    ip('link', 'add', `${name}a`, 'type', 'veth', 'peer', 'name', 'eth0', 'netns', name)
    ip('link', 'set', `${name}a`, 'master', this.#bridge, 'up')
    const address = `${this.#subnet}.${index + 10}`
    ip('-n', name, 'addr', 'add', `${address}/24`, 'dev', 'eth0')
    ip('-n', name, 'link', 'set', 'eth0', 'up')
    ip('-n', name, 'link', 'set', 'lo', 'up')
    // `ip netns exec` would also replace /sys.
    return { index, address, enter: ['nsenter', `--net=/run/netns/${name}`] }
  }

  cut(index: number): void {
    ip('link', 'set', `${this.#hosts[index]}a`, 'down')
  }

  mend(index: number): void {
    ip('link', 'set', `${this.#hosts[index]}a`, 'up')
  }

  close(): void {
    for (const name of this.#hosts) ip('netns', 'del', name)
    ip('link', 'del', this.#bridge)
  }
}

const ip = (...args: readonly string[]): void => {
  execFileSync('ip', args, { stdio: ['ignore', 'ignore', 'inherit'] })
}
