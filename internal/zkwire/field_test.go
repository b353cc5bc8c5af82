package zkwire

import (
	"math"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

func TestFieldsAreReadBack(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var (
			flag   = rapid.Bool().Draw(t, "flag")
			small  = rapid.Int32().Draw(t, "int32")
			large  = rapid.Int64().Draw(t, "int64")
			text   = rapid.String().Draw(t, "string")
			buffer = rapid.OneOf(rapid.Just([]byte(nil)), rapid.SliceOf(rapid.Byte())).Draw(t, "buffer")
			list   = rapid.SliceOf(rapid.String()).Draw(t, "strings")
		)
		b := AppendInt64(AppendInt32(AppendBool(nil, flag), small), large)
		b = AppendBuffer(AppendString(AppendString(b, text), text), buffer)
		b = AppendInt32(b, int32(len(list)))
		for _, s := range list {
			b = AppendString(b, s)
		}

		d := Decoder{Rest: b}
		require.Equal(t, flag, d.Bool())
		require.Equal(t, small, d.Int32())
		require.Equal(t, large, d.Int64())
		require.Equal(t, text, d.String())
		nullable, ok := d.NullableString()
		require.True(t, ok)
		require.Equal(t, text, nullable)
		require.Equal(t, buffer, d.Buffer())
		require.True(t, slices.Equal(list, d.Strings()))
		require.False(t, d.Bad)
		require.Empty(t, d.Rest)
	})
}

func TestBuffersAreCopies(t *testing.T) {
	b := AppendBuffer(nil, []byte("abc"))
	d := Decoder{Rest: b}
	buffer := d.Buffer()
	b[4] = 'x'
	require.Equal(t, "abc", string(buffer))
}

func TestNullFields(t *testing.T) {
	for name, read := range map[string]struct {
		field func(*Decoder) (there bool)
		bad   bool
	}{
		"buffer":          {func(d *Decoder) bool { return d.Buffer() != nil }, false},
		"nullable string": {func(d *Decoder) bool { _, ok := d.NullableString(); return ok }, false},
		"vector":          {func(d *Decoder) bool { return d.Vector(func() { t.Fatal("an element") }) }, false},
		"string":          {func(d *Decoder) bool { return d.String() != "" }, true},
		"strings":         {func(d *Decoder) bool { return len(d.Strings()) > 0 }, true},
	} {
		d := Decoder{Rest: AppendInt32(nil, -1)}
		require.False(t, read.field(&d), name)
		require.Equal(t, read.bad, d.Bad, name)
	}
}

func TestVectorWithANegativeCountIsEmpty(t *testing.T) {
	d := Decoder{Rest: AppendInt32(nil, -2)}
	require.True(t, d.Vector(func() { t.Fatal("an element of an empty vector") }))
	require.False(t, d.Bad)
}

func TestLengthsThatAreNotThereMakeTheDecoderBad(t *testing.T) {
	for _, length := range []int32{1, math.MaxInt32, -2, math.MinInt32} {
		b := AppendInt32(nil, length)
		for name, read := range map[string]func(*Decoder){
			"buffer":          func(d *Decoder) { d.Buffer() },
			"string":          func(d *Decoder) { _ = d.String() },
			"nullable string": func(d *Decoder) { d.NullableString() },
		} {
			d := Decoder{Rest: b}
			read(&d)
			require.True(t, d.Bad, "%s of %d bytes", name, length)
		}
	}
}

func TestHugeVectorEndsWhereItsBytesEnd(t *testing.T) {
	d := Decoder{Rest: AppendString(AppendInt32(nil, math.MaxInt32), "one")}
	require.Equal(t, []string{"one", ""}, d.Strings())
	require.True(t, d.Bad)
}

// FuzzDecoder reads arbitrary fields from arbitrary bytes.
func FuzzDecoder(f *testing.F) {
	f.Add([]byte("isbnvl8"), AppendString(AppendInt32(nil, 3), "abc"))
	f.Fuzz(func(t *testing.T, fields, b []byte) {
		d := Decoder{Rest: b}
		for _, field := range fields {
			left := len(d.Rest)
			switch field % 7 {
			case 0:
				d.Int32()
			case 1:
				d.Int64()
			case 2:
				d.Bool()
			case 3:
				require.LessOrEqual(t, len(d.Buffer()), left)
			case 4:
				require.LessOrEqual(t, len(d.String()), left)
			case 5:
				d.NullableString()
			case 6:
				require.LessOrEqual(t, len(d.Strings()), left/4+1)
			}
			require.LessOrEqual(t, len(d.Rest), left)
			require.False(t, d.Bad && len(d.Rest) > 0)
		}
	})
}
