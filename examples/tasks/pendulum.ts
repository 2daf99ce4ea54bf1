/** A pendulum, as a function that runs on workers. */

import { defineTask } from 'tutti'

/** Swings it from an angle (in degrees) and counts its period in seconds; slow on purpose. */
export const period = defineTask(import.meta.url, function period(degrees: number): number {
  const step = 1e-5
  let [angle, speed, seconds] = [(degrees * Math.PI) / 180, 0, 0]
  while (angle > 0) {
    speed -= 9.81 * Math.sin(angle) * step
    angle += speed * step
    seconds += step
  }
  return 4 * seconds
})

/** A line for each angle. */
export const tabulate = defineTask(
  import.meta.url,
  function tabulate(angles: number[], periods: number[]): string[] {
    return angles.map((angle, at) => `${angle}° ${periods[at]?.toFixed(2)} s`)
  },
)
