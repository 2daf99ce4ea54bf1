/** Which hosts are this machine and nobody else's. */

const names = /^(?:localhost|127(?:\.\d{1,3}){3}|::1|\[::1\])$/i

/** Whether only programs of this machine can reach the host. */
export const isLoopback = (host: string): boolean => names.test(host)
