/** The slider of the replayed time. */

import { useEffect, useRef } from 'preact/hooks'
import { signal } from '@preact/signals'
import { secondsText } from '../../../views/readable.ts'
import { pageState, updateState } from '../state/fragment.ts'
import { nowMs } from '../state/page-clock.ts'
import { endTime, startTime } from '../state/views.ts'

const isPlaying = signal(false)
/** A whole run is replayed in this time. */
const replaySeconds = 40

export function Replay() {
  const { t } = pageState.value
  if (t === null) return null
  return <Slider t={t} />
}

function Slider({ t }: { readonly t: number }) {
  const end = Math.max(0, (endTime.value ?? 0) - (startTime.value ?? 0))
  usePlay(end)
  return (
    <section class="replay" aria-label="Replay">
      <button
        type="button"
        aria-pressed={isPlaying.value}
        onClick={() => (isPlaying.value = !isPlaying.value)}
      >
        {isPlaying.value ? 'Stop' : 'Play'}
      </button>
      <input
        type="range"
        min="0"
        max={end}
        step="any"
        value={Math.min(t, end)}
        aria-label="Replayed time"
        aria-valuetext={secondsText(t)}
        onInput={(event) => updateState({ t: event.currentTarget.valueAsNumber })}
      />
      <output>
        {secondsText(Math.min(t, end))} of {secondsText(end)}
      </output>
    </section>
  )
}

/** Moves the replayed time while it plays, ten times per second. */
function usePlay(end: number): void {
  const last = useRef(0)
  useEffect(() => {
    if (!isPlaying.value) return undefined
    let frame = 0
    last.current = nowMs()
    const step = (): void => {
      const passed = (nowMs() - last.current) / 1000
      if (passed >= 0.1) {
        last.current = nowMs()
        const t = (pageState.peek().t ?? 0) + (passed * end) / replaySeconds
        updateState({ t: Math.min(t, end) })
        if (t >= end) isPlaying.value = false
      }
      frame = requestAnimationFrame(step)
    }
    frame = requestAnimationFrame(step)
    return () => cancelAnimationFrame(frame)
  }, [isPlaying.value, end])
}
