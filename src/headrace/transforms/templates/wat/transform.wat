;; A transform in WebAssembly's own text: it makes lower-case letters of each value upper-case.
;; Change `process_message`; `headrace wasm build` makes transform.wasm of this file.
(module
  (memory (export "memory") 2)

  ;; Where the next buffer begins. Each batch gets a fresh memory, so nothing has to be given back.
  (global $next (mut i32) (i32.const 1024))

  (func (export "alloc") (param $size i32) (result i32)
    (local $at i32)
    (local.set $at (global.get $next))
    (global.set $next (i32.add (local.get $at) (local.get $size)))
    (if (i32.gt_u (global.get $next) (i32.mul (memory.size) (i32.const 65536)))
      (then
        (if (i32.eq (memory.grow (i32.add (i32.shr_u (local.get $size) (i32.const 16)) (i32.const 1))) (i32.const -1))
          (then (unreachable)))))
    (local.get $at))

  ;; Gives back where the new value is: a pointer to its pointer and its size. 0 would drop the record.
  (func (export "process_message") (param $at i32) (param $size i32) (result i32)
    (local $place i32) (local $end i32) (local $byte i32)
    (local.set $place (local.get $at))
    (local.set $end (i32.add (local.get $at) (local.get $size)))
    (block $done
      (loop $each
        (br_if $done (i32.ge_u (local.get $place) (local.get $end)))
        (local.set $byte (i32.load8_u (local.get $place)))
        (if (i32.and (i32.ge_u (local.get $byte) (i32.const 97)) (i32.le_u (local.get $byte) (i32.const 122)))
          (then (i32.store8 (local.get $place) (i32.sub (local.get $byte) (i32.const 32)))))
        (local.set $place (i32.add (local.get $place) (i32.const 1)))
        (br $each)))
    (i32.store (i32.const 8) (local.get $at))
    (i32.store (i32.const 12) (local.get $size))
    (i32.const 8)))
