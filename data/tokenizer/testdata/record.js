// Makes small tokenizers of the kinds that tokenizer.json files have, and records what Hugging Face's
// tokenizers makes of some texts with them.
//
//	npm install @anush008/tokenizers@0.6.0 && node record.js
const fs = require('fs')
const { Tokenizer } = require('@anush008/tokenizers')

const sample = `func main() {\n\tfor i := 0; i < 1024; i++ {\n\t\tfmt.Println("it's the number", i)\n\t}\n}\n
The tokenizer that they've trained isn't the one we'll use: it's another one, of the same kind.
Über die Größe der Straße läßt sich streiten; 北京 and 東京 are cities, 北京 twice. 🙂🙂\n`.repeat(2)

const texts = ['', ' ', 'a', 'Hello, world!', sample, "it's they'VE we'll I'd 's 't", '  two  spaces   three    ', '\n\n\t\t x\r\n\r\n  y',
  '12345 678 9,000.50', 'naïve café Ünïcödé', '北京东京 🙂 👩‍👩‍👧', 'tab\there\u00a0nbsp\u3000wide\u2028line', '<|endoftext|>after', 'before <|endoftext|> <s> x</s>',
  '<mask>  <mask>x', '▁already▁marked', '\u0000\u0001\u007f', 'x'.repeat(200) + 'the the the', ' leading', 'trailing ', "don't 'quote' 'll", 'e\u0301 \u00e9', 'aaaaaaa aa']

const runes = [...Array(256).keys()].map(b => (b > 32 && b < 127 || b > 160 && b < 173 || b > 173) ? b : 0)
let next = 256
const alphabet = runes.map(r => String.fromCharCode(r || next++))
const byteLevel = word => [...Buffer.from(word)].map(b => alphabet[b])

// train joins the most frequent pair of the words, again and again.
function train(words, n) {
  const merges = []
  words = words.map(w => [...w])
  for (; merges.length < n;) {
    const count = new Map()
    for (const w of words) for (let i = 1; i < w.length; i++) {
      const key = w[i - 1] + ' ' + w[i]
      count.set(key, (count.get(key) || 0) + 1)
    }
    const best = [...count].sort((a, b) => b[1] - a[1] || (a[0] < b[0] ? -1 : 1))[0]
    if (!best || best[1] < 2) break
    const [l, r] = best[0].split(' ')
    merges.push([l, r])
    words = words.map(w => {
      const out = []
      for (let i = 0; i < w.length; i++) {
        if (i + 1 < w.length && w[i] === l && w[i + 1] === r) { out.push(l + r); i++ } else out.push(w[i])
      }
      return out
    })
  }
  return merges
}

const added = (id, content, more = {}) => ({ id, content, single_word: false, lstrip: false, rstrip: false, normalized: false, special: true, ...more })
const llama3 = "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"
const gpt2 = /'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+/gu

function bytesModel(n, more) {
  const merges = train(sample.match(gpt2).map(byteLevel), n)
  const vocab = {}
  for (const c of [...alphabet].sort()) vocab[c] = Object.keys(vocab).length
  for (const [l, r] of merges) if (!(l + r in vocab)) vocab[l + r] = Object.keys(vocab).length
  return { type: 'BPE', dropout: null, unk_token: null, continuing_subword_prefix: '', end_of_word_suffix: '', fuse_unk: false, vocab, merges, ...more }
}

function runesModel(n, words, fallback, more) {
  const merges = train(words, n)
  const vocab = { '<unk>': 0, '<s>': 1, '</s>': 2 }
  if (fallback) for (let b = 0; b < 256; b++) vocab['<0x' + b.toString(16).toUpperCase().padStart(2, '0') + '>'] = Object.keys(vocab).length
  for (const [l, r] of merges) vocab[l + r] = Object.keys(vocab).length
  for (const c of [...new Set(words.join(''))].filter(c => c !== '東' && c !== '🙂').sort()) if (!(c in vocab)) vocab[c] = Object.keys(vocab).length
  return { type: 'BPE', dropout: null, unk_token: '<unk>', continuing_subword_prefix: null, end_of_word_suffix: null, fuse_unk: true, byte_fallback: fallback, vocab, merges, ...more }
}

const gpt2Model = bytesModel(150)
gpt2Model.vocab['<|endoftext|>'] = Object.keys(gpt2Model.vocab).length
const size = m => Object.keys(m.vocab).length
const llama3Model = bytesModel(120, { ignore_merges: true })
for (const whole of ['Ġtokenizer', 'ĠPrintln', 'Hello']) llama3Model.vocab[whole] = size(llama3Model)
const marked = ['▁' + sample.replaceAll(' ', '▁')]
const llama2Model = runesModel(100, marked, true)
const plainModel = runesModel(60, sample.replaceAll(' ', '▁').match(/▁?[^▁]+/g), false)

const files = {
  gpt2: { added_tokens: [added(size(gpt2Model) - 1, '<|endoftext|>', { normalized: true })], normalizer: null,
    pre_tokenizer: { type: 'ByteLevel', add_prefix_space: false, trim_offsets: true, use_regex: true },
    post_processor: { type: 'ByteLevel', add_prefix_space: true, trim_offsets: false, use_regex: true },
    decoder: { type: 'ByteLevel', add_prefix_space: true, trim_offsets: true, use_regex: true },
    model: { ...gpt2Model, merges: gpt2Model.merges.map(m => m.join(' ')) } },
  llama3: { added_tokens: [added(size(llama3Model), '<s>'), added(size(llama3Model) + 1, '<|endoftext|>'), added(size(llama3Model) + 2, '<mask>', { lstrip: true, rstrip: true })],
    normalizer: { type: 'NFC' },
    pre_tokenizer: { type: 'Sequence', pretokenizers: [{ type: 'Split', pattern: { Regex: llama3 }, behavior: 'Isolated', invert: false },
      { type: 'ByteLevel', add_prefix_space: false, trim_offsets: true, use_regex: false }] },
    post_processor: { type: 'Sequence', processors: [{ type: 'ByteLevel', add_prefix_space: true, trim_offsets: false, use_regex: true },
      { type: 'TemplateProcessing', single: [{ SpecialToken: { id: '<s>', type_id: 0 } }, { Sequence: { id: 'A', type_id: 0 } }],
        pair: [{ Sequence: { id: 'A', type_id: 0 } }, { Sequence: { id: 'B', type_id: 1 } }],
        special_tokens: { '<s>': { id: '<s>', ids: [size(llama3Model)], tokens: ['<s>'] } } }] },
    decoder: { type: 'ByteLevel', add_prefix_space: true, trim_offsets: true, use_regex: true }, model: llama3Model },
  llama2: { added_tokens: [added(0, '<unk>'), added(1, '<s>'), added(2, '</s>')],
    normalizer: { type: 'Sequence', normalizers: [{ type: 'Prepend', prepend: '▁' }, { type: 'Replace', pattern: { String: ' ' }, content: '▁' }] },
    pre_tokenizer: null,
    post_processor: { type: 'TemplateProcessing', single: [{ SpecialToken: { id: '<s>', type_id: 0 } }, { Sequence: { id: 'A', type_id: 0 } }, { SpecialToken: { id: '</s>', type_id: 0 } }],
      pair: [{ Sequence: { id: 'A', type_id: 0 } }, { Sequence: { id: 'B', type_id: 1 } }],
      special_tokens: { '<s>': { id: '<s>', ids: [1], tokens: ['<s>'] }, '</s>': { id: '</s>', ids: [2], tokens: ['</s>'] } } },
    decoder: { type: 'Sequence', decoders: [{ type: 'Replace', pattern: { String: '▁' }, content: ' ' }, { type: 'ByteFallback' }, { type: 'Fuse' }, { type: 'Strip', content: ' ', start: 1, stop: 0 }] },
    model: llama2Model },
  metaspace: { added_tokens: [added(0, '<unk>'), added(1, '<s>'), added(2, '</s>')], normalizer: null,
    pre_tokenizer: { type: 'Metaspace', replacement: '▁', prepend_scheme: 'first', split: true },
    post_processor: null, decoder: { type: 'Metaspace', replacement: '▁', prepend_scheme: 'first', split: true }, model: plainModel },
}

async function main() {
  for (const [name, file] of Object.entries(files)) {
    const text = JSON.stringify({ version: '1.0', truncation: null, padding: null, ...file })
    fs.mkdirSync(name, { recursive: true })
    fs.writeFileSync(name + '/tokenizer.json', text + '\n')
    const t = Tokenizer.fromString(text)
    const cases = []
    for (const s of texts) {
      const ids = (await t.encode(s, null, { addSpecialTokens: false })).getIds()
      cases.push({ text: s, ids, whole: (await t.encode(s, null, { addSpecialTokens: true })).getIds(), decoded: await t.decode(ids, false) })
    }
    fs.writeFileSync(name + '/cases.json', cases.map(c => JSON.stringify(c)).join('\n') + '\n')
  }
  fs.mkdirSync('gpt2-two-files', { recursive: true })
  fs.writeFileSync('gpt2-two-files/vocab.json', JSON.stringify(gpt2Model.vocab) + '\n')
  fs.writeFileSync('gpt2-two-files/merges.txt', '#version: 0.2\n' + gpt2Model.merges.map(m => m.join(' ')).join('\n') + '\n')
}
main()
