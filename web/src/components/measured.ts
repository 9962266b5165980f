// The width of an element, for drawings that are computed in pixels.
import { useLayoutEffect, useRef, useState } from "preact/hooks";

/** Returns a reference for an element and its width, 0 until it is known. */
export function useMeasuredWidth<E extends HTMLElement>() {
  const ref = useRef<E>(null);
  const [width, setWidth] = useState(0);
  useLayoutEffect(() => {
    const element = ref.current;
    if (!element) return;
    const measure = () => setWidth(Math.floor(element.clientWidth));
    measure();
    const observer = new ResizeObserver(measure);
    observer.observe(element);
    return () => observer.disconnect();
  }, []);
  return [ref, width] as const;
}
