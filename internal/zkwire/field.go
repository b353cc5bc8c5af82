package zkwire

import (
	"encoding/binary"
	"errors"
)

// ErrMalformed is returned for bytes that lack the fields they should have.
var ErrMalformed = errors.New("malformed packet")

// A Decoder reads fields off the front of Rest. If a field doesn't fit, Bad becomes true, Rest
// becomes empty, and every further read returns a zero value. So callers can check once, at the
// end. Memory is allocated only for bytes that Rest has.
type Decoder struct {
	Rest []byte
	Bad  bool
}

func (d *Decoder) take(n int) []byte {
	if n < 0 || n > len(d.Rest) {
		d.Rest, d.Bad = nil, true
		return nil
	}
	head := d.Rest[:n]
	d.Rest = d.Rest[n:]
	return head
}

// Bool returns the next byte as a boolean.
func (d *Decoder) Bool() bool {
	b := d.take(1)
	return len(b) == 1 && b[0] != 0
}

// Int32 returns the next number of four bytes.
func (d *Decoder) Int32() int32 {
	if b := d.take(4); b != nil {
		return int32(binary.BigEndian.Uint32(b))
	}
	return 0
}

// Int64 returns the next number of eight bytes.
func (d *Decoder) Int64() int64 {
	if b := d.take(8); b != nil {
		return int64(binary.BigEndian.Uint64(b))
	}
	return 0
}

// Buffer returns a copy of the next buffer, or nil for the null buffer (its length is -1).
func (d *Decoder) Buffer() []byte {
	n := d.Int32()
	if n == -1 {
		return nil
	}
	b := d.take(int(n))
	if d.Bad {
		return nil
	}

	return append([]byte{}, b...)
}

// String returns the next string. A null string sets Bad, because few fields can be null.
func (d *Decoder) String() string {
	return string(d.take(int(d.Int32())))
}

// NullableString returns the next string. It reports false for the null string.
func (d *Decoder) NullableString() (s string, ok bool) {
	n := d.Int32()
	if n == -1 {
		return "", false
	}
	return string(d.take(int(n))), true
}

// Vector calls next for each element of the next vector. It reports false for the null vector. A
// vector with a negative count is empty.
func (d *Decoder) Vector(next func()) bool {
	n := d.Int32()

	// A count can be a lie, so the first element that is missing ends the loop.
	for i := int32(0); i < n && !d.Bad; i++ {
		next()
	}
	return n != -1
}

// Strings returns the elements of the next vector of strings. A null vector sets Bad.
func (d *Decoder) Strings() []string {
	var list []string
	if !d.Vector(func() { list = append(list, d.String()) }) {
		d.take(-1)
	}
	return list
}

// AppendBool appends a boolean.
func AppendBool(b []byte, v bool) []byte {
	if v {
		return append(b, 1)
	}
	return append(b, 0)
}

// AppendInt32 appends a number of four bytes.
func AppendInt32(b []byte, v int32) []byte { return binary.BigEndian.AppendUint32(b, uint32(v)) }

// AppendInt64 appends a number of eight bytes.
func AppendInt64(b []byte, v int64) []byte { return binary.BigEndian.AppendUint64(b, uint64(v)) }

// AppendString appends a string.
func AppendString(b []byte, s string) []byte {
	return append(AppendInt32(b, int32(len(s))), s...)
}

// AppendStrings appends a vector of strings.
func AppendStrings(b []byte, list []string) []byte {
	b = AppendInt32(b, int32(len(list)))
	for _, s := range list {
		b = AppendString(b, s)
	}
	return b
}

// AppendBuffer appends a buffer. A nil slice becomes the null buffer.
func AppendBuffer(b, data []byte) []byte {
	if data == nil {
		return AppendInt32(b, -1)
	}
	return append(AppendInt32(b, int32(len(data))), data...)
}
