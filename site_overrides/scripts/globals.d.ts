// What the scripts share and what they load: types alone, of which no page carries anything.

type Lang = "zh" | "en";
/** The same words in each language. */
type Bilingual = Record<Lang, string>;

/** The table of words; of it a page carries what generator/words.py sends to scripts. */
type Table = typeof import("../../generator/words.json");
/** "search.nothing": a phrase by its group and its name. */
type Key = { [Group in keyof Table]: `${Group}.${keyof Table[Group] & string}` }[keyof Table];
/** What is filled in, by name. */
type Values = Record<string, Bilingual | string | number>;

// --- the reader's browser: store.js ----------------------------------------------------------------

type SettingName = "mode" | "depth" | "keys" | "scheme";

interface Store {
  /** The values that each setting may have. */
  SETTINGS: Record<SettingName, string[]>;
  /** What stands under a name, as text; null where nothing does or storage is forbidden. */
  text(name: string): string | null;
  /** The value of some JSON; null where it is none. */
  parsed(json: string | null): unknown;
  /** What stands under a name, made sound by a check. */
  read<T>(name: string, check: (value: unknown) => T): T;
  /** Keep a value; whether it was kept. */
  write(name: string, value: unknown): boolean;
  remove(name: string): void;
  /** Whether this browser keeps anything at all. */
  works(): boolean;
  /** The settings that were kept, of those that there are. */
  settings(): Partial<Record<SettingName, string>>;
  /** Names to values that pass the check; free of what every object inherits, such as "constructor". */
  dictionary<T>(value: unknown, check: (value: unknown, name: string) => T | undefined): Record<string, T>;
  isObject(value: unknown): value is Record<string, unknown>;
  /** Act when another tab writes under a name, or clears it. */
  follow(name: string, act: () => void): void;
}

// --- what all scripts use: core.js -----------------------------------------------------------------

type Child = Node | string | false | null | undefined;
type Attribute = string | number | boolean | null | undefined | ((event: Event) => unknown);
type Kind<E extends Element> = { new (): E; prototype: E };

/** A link, or the address of the page. */
type Place = { hash: string };

/** A single key, or several that do the same; `act` may decline by returning false. */
interface SingleKey {
  names: string[];
  does: Key;
  act(event: KeyboardEvent): unknown;
}

interface Core {
  /** <html>, whose data attributes are the settings. */
  root: HTMLElement;
  /** Whether this page is the handbook, with all cards in one document. */
  handbook: boolean;
  /** The root of the site. */
  base: URL;
  get(name: SettingName): string | undefined;
  /** Change a setting, and keep it unless it is for this page only. */
  set(name: SettingName, value: string, how?: { keep?: boolean }): void;
  onSet(name: SettingName, act: (value: string) => void): void;

  /** element("p", { class: "x", onclick: f }, "text", child, …); what is false, null or undefined is left out. */
  element<K extends keyof HTMLElementTagNameMap>(
    tag: K,
    attributes?: Record<string, Attribute>,
    ...children: (Child | readonly Child[])[]
  ): HTMLElementTagNameMap[K];
  /** The element that a page of this sort has; an error where it is missing. */
  one<E extends Element = HTMLElement>(selector: string, scope?: ParentNode, kind?: Kind<E>): E;
  /** Every element that fits, in the order of the page. */
  all<E extends Element = HTMLElement>(selector: string, scope?: ParentNode, kind?: Kind<E>): E[];
  /** The nearest element that fits around what an event or a link has hit. */
  around<E extends Element = HTMLElement>(
    target: EventTarget | null | undefined,
    selector: string,
    kind?: Kind<E>,
  ): E | null;
  /** Copies of what stands in an element. */
  copies(of: Node | null | undefined): Node[];

  LANGS: Lang[];
  /** A text in each language. */
  inEach(of: (lang: Lang) => string): Bilingual;
  /** A phrase of the table of words, with its {places} filled. */
  phrase(key: Key, values?: Values): Bilingual;
  /** A phrase or a text in every language; styles show those of the mode. */
  say(what: Key | Bilingual, values?: Values): HTMLElement[];
  /** Where only plain text will do (labels, placeholders): the same in the languages of the mode. */
  words(what: Key | Bilingual, values?: Values): string;
  /** For labels that do not change with the mode: a phrase in every language. */
  label(key: Key): string;
  /** The languages that the mode shows. */
  languages(): Lang[];
  /** Said to screen readers, once. */
  announce(text: string): void;

  /** Single keys, each with what it does; the help dialog lists them. */
  keys: SingleKey[];
  key(names: string | string[], does: Key, act: SingleKey["act"]): void;

  /** The id of a place in a card. */
  anchor(card: string, id?: string): string;
  /** The address of a card or of a place in it. What is empty in the query is left out. */
  address(card: string, id?: string, query?: Record<string, string>): string;
  /** The place that an address names behind "#". */
  place(link?: Place): string;
  /** The element at that place. */
  target(link?: Place): HTMLElement | null;

  data(name: "search"): Promise<SearchData>;
  data(name: "study"): Promise<StudyData>;
  data(name: `${string}/cards`): Promise<ModuleContents>;
  /** Have a script of the site run, once; the handbook has none. */
  script(name: string): Promise<unknown>;
  library(name: string, global: "MiniSearch"): Promise<MiniSearchClass>;
  library(name: string, global: "FSRS"): Promise<Fsrs>;
}

// --- data of the edition ---------------------------------------------------------------------------

type Named = { id: string; title: Bilingual };
type Section =
  | "answer"
  | "spoken"
  | "intuition"
  | "insights"
  | "example"
  | "derivation"
  | "code"
  | "tradeoffs"
  | "pitfalls"
  | "followups"
  | "points";
type Difficulty = "easy" | "medium" | "hard";
type Proof = "proven" | "computed" | "measured" | "stale" | "none";

/** See generator/edition/search_data.py. */
interface SearchCard extends Named {
  aliases: Record<Lang, string[]>;
  module: string;
  difficulty: Difficulty;
  tags: string[];
  proof: Proof;
}
type SearchPart = [card: number, section: Section, place: string, lang: Lang, heading: string, text: string];
interface SearchData {
  modules: Named[];
  cards: SearchCard[];
  /** Of each term of the glossary all that people write for it. */
  terms: string[][];
  parts: SearchPart[];
}

/** See generator/edition/website.py. */
interface ModuleContents {
  title: Bilingual;
  topics: { title: Bilingual; cards: Named[] }[];
}

/** See generator/edition/study_data.py. */
interface StudyItem {
  id: string;
  kind: "followup" | "pitfall" | "number";
  card: string;
  ask: Bilingual;
}
interface StudyNumber extends StudyItem {
  kind: "number";
  of: Bilingual;
  how: Bilingual;
  evidence: string;
  text: Partial<Bilingual>;
  unit: string;
  value: number;
  tolerance: number;
  factor: number;
}
interface StudyData {
  modules: Named[];
  paths: (Named & { cards: string[] })[];
  cards: Record<string, { title: Bilingual; module: string; tags: string[]; updated: string }>;
  successors: Record<string, string>;
  items: (StudyItem | StudyNumber)[];
  units: Record<string, [unit: string, worth: number]>;
  multipliers: Record<string, number>;
}

// --- study progress: progress.js -------------------------------------------------------------------

type Score = "right" | "close" | "wrong" | "unread";
type Rating = 1 | 2 | 3 | 4;
type Outcomes = Record<Rating, { card: { due: Date } }>;

/** The schedule of an item: FSRS's, with dates as ISO text. */
interface Schedule {
  due: string;
  last_review: string;
  stability: number;
  difficulty: number;
  reps: number;
  lapses: number;
  state: 0 | 1 | 2 | 3;
  scheduled_days: number;
  elapsed_days: number;
  learning_steps: number;
}
type Review = [item: string, rating: Rating, at: string];

/** `replaced`: when a file took its place, as ISO text, or "". */
interface Progress {
  replaced: string;
  items: Record<string, Schedule>;
  log: Review[];
}
/** A progress as read from text, and how many of its entries could not be. */
interface ProgressRead {
  progress: Progress;
  refused: number;
}

interface ProgressNeeds {
  /** FSRS. */
  scheduler: { repeat(from: any, at: Date): Outcomes };
  /** The schedule of what was never asked. */
  fresh(at: Date): object;
  /** A card's former id → its id. */
  successors: Record<string, string>;
}

interface OpenProgress {
  of(item: string): Schedule | undefined;
  size(): number;
  /** Whether the browser has kept all of it. */
  kept(): boolean;
  /** What each rating would lead to now. */
  next(item: string): { at: Date; options: Outcomes };
  rate(item: string, rating: Rating): void;
  /** Nothing where the text is no progress at all. */
  read(text: string): ProgressRead | undefined;
  add(progress: Progress): void;
  replace(progress: Progress): void;
  canUndo(): boolean;
  undo(): void;
  /** Try once more to keep it. */
  again(): void;
  text(): string;
  /** How many stored entries could not be read or scheduled. */
  refused(): number;
  asideText(): string;
  discard(): void;
  onChange(act: () => void): void;
}

// --- where the reader is: reading.js, ways.js --------------------------------------------------------

/** How far the reader is with a card; `opened` is a day. */
interface ReadingState {
  opened?: string;
  known?: boolean;
}
/** The path that the reader is on, or "", and the card where they were. */
interface Way {
  path: string;
  card: string;
  title: Bilingual;
}

// --- the page --------------------------------------------------------------------------------------

type MiniSearchClass = typeof import("minisearch").default;
type Fsrs = typeof import("ts-fsrs");

/** What became of a number: see generator/evidence. */
type Verdict = keyof Table["verdicts"];

/** What stands beside a link. */
interface Shown {
  /** What is read out with the link: words alone. */
  said: Child[];
  /** What follows it; an element with an id is read out as well. */
  more?: HTMLElement[];
  verdict?: Verdict;
  /** Done when it goes. */
  left?(): void;
}
/** A kind of links, and what stands beside them while they are pointed at. */
interface Beside {
  of(link: HTMLAnchorElement): boolean;
  show(link: HTMLAnchorElement): Shown | undefined | Promise<Shown | undefined>;
  /** Whether a finger sees it before it follows the link. */
  touch: boolean;
}

interface Proofdeck extends Core {
  beside(source: Beside): void;
  store: Store;
  /** The value of the `lang` attribute for each language. */
  htmlLang: Record<Lang, string>;
  phrases: Partial<Record<Key, Bilingual>>;
  search: {
    /** Look for something at once where a query is given. */
    open(query?: string, typed?: string): void;
    /** Light the words that a search has led to, in the place behind "#" and the language where they stand. */
    light(query: string, anchor: string, lang: string | null): void;
  };
  /** What was read, by card. */
  reading(): Record<string, ReadingState>;
  way: {
    read(): Way;
    /** Go to what stands before or behind the card on screen; false where nothing does. */
    follow(rel: "prev" | "next"): boolean;
  };
  progress: { open(needs: ProgressNeeds): OpenProgress };
  /** How a typed number fares; tests ask it. */
  score(text: string, item: StudyNumber): Score;
}

interface Window {
  pd: Proofdeck;
  MiniSearch?: MiniSearchClass;
  FSRS?: Fsrs;
  // What the theme's script asks for.
  __md_scope: URL;
  __md_get(key: string, storage?: Storage, at?: URL): any;
  __md_set(key: string, value: unknown, storage?: Storage, at?: URL): void;
}

interface DocumentEventMap {
  "pd:set": CustomEvent<{ name: SettingName; value: string }>;
}
