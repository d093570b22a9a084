;; Runs `process_message` of a module over all records of a batch, inside the sandbox: the border to the host is crossed
;; once for each batch and not for each record. The records are those of a record batch (docs/transforms.md), checked by the
;; host before; they lie in the memory of this module, and what is made of them is written behind them.
;;
;; Whatever the module says of its own memory is read with Wasm's own bounds: a pointer to nowhere traps.
(module
  (import "module" "memory" (memory $theirs 0))
  (import "module" "alloc" (func $alloc (param i32) (result i32)))
  (import "module" "dealloc" (func $dealloc (param i32 i32)))
  (import "module" "process_message" (func $process (param i32 i32) (result i32)))

  (memory $ours (export "memory") 1)

  ;; The record that the module is working on, by its place in the batch.
  (global $record (export "record") (mut i32) (i32.const 0))
  ;; How many records there are in what was made.
  (global $kept (export "kept") (mut i32) (i32.const 0))
  ;; Why this module trapped, where it is not the other's fault: 1, no memory is left for what it makes; 2, `alloc` gave none.
  (global $shortage (export "shortage") (mut i32) (i32.const 0))
  ;; The position behind the number that was read last.
  (global $next (mut i32) (i32.const 0))

  (func $read_number (param $at i32) (result i32)
    (local $value i32) (local $shift i32) (local $byte i32)
    (loop $more
      (local.set $byte (i32.load8_u $ours (local.get $at)))
      (local.set $value
        (i32.or (local.get $value)
          (i32.shl (i32.and (local.get $byte) (i32.const 127)) (local.get $shift))))
      (local.set $shift (i32.add (local.get $shift) (i32.const 7)))
      (local.set $at (i32.add (local.get $at) (i32.const 1)))
      (br_if $more (i32.and (local.get $byte) (i32.const 128))))
    (global.set $next (local.get $at))
    (i32.xor
      (i32.shr_u (local.get $value) (i32.const 1))
      (i32.sub (i32.const 0) (i32.and (local.get $value) (i32.const 1)))))

  ;; Of a size; gives the position behind it.
  (func $write_number (param $at i32) (param $value i32) (result i32)
    (local.set $value (i32.shl (local.get $value) (i32.const 1)))
    (block $done
      (loop $more
        (br_if $done (i32.le_u (local.get $value) (i32.const 127)))
        (i32.store8 $ours (local.get $at)
          (i32.or (i32.and (local.get $value) (i32.const 127)) (i32.const 128)))
        (local.set $value (i32.shr_u (local.get $value) (i32.const 7)))
        (local.set $at (i32.add (local.get $at) (i32.const 1)))
        (br $more)))
    (i32.store8 $ours (local.get $at) (local.get $value))
    (i32.add (local.get $at) (i32.const 1)))

  ;; How many bytes a size takes.
  (func $width (param $value i32) (result i32)
    (local $count i32)
    (local.set $value (i32.shl (local.get $value) (i32.const 1)))
    (local.set $count (i32.const 1))
    (block $done
      (loop $more
        (br_if $done (i32.le_u (local.get $value) (i32.const 127)))
        (local.set $value (i32.shr_u (local.get $value) (i32.const 7)))
        (local.set $count (i32.add (local.get $count) (i32.const 1)))
        (br $more)))
    (local.get $count))

  (func $give_up (param $why i32)
    (global.set $shortage (local.get $why))
    (unreachable))

  ;; Memory up to `end`, a mebibyte at a time.
  (func $make_room (param $end i32)
    (local $missing i32)
    (local.set $missing
      (i32.sub (i32.add (i32.shr_u (local.get $end) (i32.const 16)) (i32.const 1)) (memory.size $ours)))
    (if (i32.gt_s (local.get $missing) (i32.const 0))
      (then
        (if (i32.eq (memory.grow $ours (i32.add (local.get $missing) (i32.const 15))) (i32.const -1))
          (then
            (if (i32.eq (memory.grow $ours (local.get $missing)) (i32.const -1))
              (then (call $give_up (i32.const 1)))))))))

  ;; The records at 0 up to `size`; gives where what was made of them ends. It begins at `size`.
  (func (export "run") (param $count i32) (param $size i32) (result i32)
    (local $out i32) (local $start i32) (local $body i32) (local $end i32) (local $head_end i32) (local $number i32)
    (local $value i32) (local $value_size i32) (local $given i32) (local $answer i32) (local $made i32)
    (local $made_size i32) (local $tail i32) (local $tail_size i32) (local $head_size i32)
    (local.set $out (local.get $size))
    (block $done
      (loop $each
        (br_if $done (i32.ge_u (global.get $record) (local.get $count)))
        (local.set $number (call $read_number (local.get $start)))
        (local.set $body (global.get $next))
        (local.set $end (i32.add (local.get $body) (local.get $number)))
        ;; Attributes, time and offset are passed over, and the key.
        (drop (call $read_number (i32.add (local.get $body) (i32.const 1))))
        (drop (call $read_number (global.get $next)))
        (local.set $number (call $read_number (global.get $next)))
        (local.set $head_end (global.get $next))
        (if (i32.gt_s (local.get $number) (i32.const 0))
          (then (local.set $head_end (i32.add (local.get $head_end) (local.get $number)))))
        (local.set $value_size (call $read_number (local.get $head_end)))
        (local.set $value (global.get $next))
        (if (i32.lt_s (local.get $value_size) (i32.const 0))
          (then
            ;; A record without a value is kept as it is.
            (local.set $number (i32.sub (local.get $end) (local.get $start)))
            (call $make_room (i32.add (local.get $out) (local.get $number)))
            (memory.copy $ours $ours (local.get $out) (local.get $start) (local.get $number))
            (local.set $out (i32.add (local.get $out) (local.get $number)))
            (global.set $kept (i32.add (global.get $kept) (i32.const 1))))
          (else
            (local.set $given (call $alloc (local.get $value_size)))
            (if (i32.and (i32.eqz (local.get $given)) (i32.ne (local.get $value_size) (i32.const 0)))
              (then (call $give_up (i32.const 2))))
            (memory.copy $theirs $ours (local.get $given) (local.get $value) (local.get $value_size))
            (local.set $answer (call $process (local.get $given) (local.get $value_size)))
            (if (local.get $answer)
              (then
                (local.set $made (i32.load $theirs (local.get $answer)))
                (local.set $made_size (i32.load $theirs offset=4 (local.get $answer)))
                ;; Past this, sums of sizes would not fit 32 bits.
                (if (i32.gt_u (local.get $made_size) (i32.const 0x3fffffff))
                  (then (call $give_up (i32.const 1))))
                (local.set $head_size (i32.sub (local.get $head_end) (local.get $body)))
                (local.set $tail (i32.add (local.get $value) (local.get $value_size)))
                (local.set $tail_size (i32.sub (local.get $end) (local.get $tail)))
                (local.set $number
                  (i32.add
                    (i32.add (local.get $head_size) (call $width (local.get $made_size)))
                    (i32.add (local.get $made_size) (local.get $tail_size))))
                (call $make_room (i32.add (i32.add (local.get $out) (local.get $number)) (i32.const 5)))
                (local.set $out (call $write_number (local.get $out) (local.get $number)))
                (memory.copy $ours $ours (local.get $out) (local.get $body) (local.get $head_size))
                (local.set $out (i32.add (local.get $out) (local.get $head_size)))
                (local.set $out (call $write_number (local.get $out) (local.get $made_size)))
                (memory.copy $ours $theirs (local.get $out) (local.get $made) (local.get $made_size))
                (local.set $out (i32.add (local.get $out) (local.get $made_size)))
                (memory.copy $ours $ours (local.get $out) (local.get $tail) (local.get $tail_size))
                (local.set $out (i32.add (local.get $out) (local.get $tail_size)))
                (global.set $kept (i32.add (global.get $kept) (i32.const 1)))
                (if (i32.ne (local.get $made) (local.get $given))
                  (then (call $dealloc (local.get $made) (local.get $made_size))))))
            (call $dealloc (local.get $given) (local.get $value_size))))
        (local.set $start (local.get $end))
        (global.set $record (i32.add (global.get $record) (i32.const 1)))
        (br $each)))
    (local.get $out)))
